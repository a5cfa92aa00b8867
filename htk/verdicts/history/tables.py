"""The tables of a history: a row for each run, and what the steps of a run cost."""

import pyarrow as pa

from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table

# Of the tables below: a newer one is left unread, an older one lacks columns or, before 2, a seal.
VERSION = 2


RUNS = table(
    run=(TEXT, "Name of the run in this history: a hash of what was recorded when."),
    name=(TEXT, "Folder or file that the run was read from."),
    recorded_at=(TEXT, "First event, UTC; null where times are not absolute."),
    device_name=(TEXT, "GPUs."),
    host=(TEXT, "First host, where recorded."),
    world_size=(INT32, "Ranks of the job."),
    rank_count=(INT32, "Ranks recorded."),
    step_count=(INT32, "Whole steps that the times below are means of; those far off are not."),
    timed_on=(TEXT, "gpu or host: whose steps; operations: rows of a whole job."),
    step_time_ns=(INT64, "Step of median length over ranks; of logged operations the mean."),
    step_time_ns_p10=(FLOAT64, "One step in ten is shorter."),
    step_time_ns_p90=(FLOAT64, "One step in ten is longer."),
    compute_ns=(INT64, "Compute of a step, mean over those steps and ranks."),
    exposed_comm_ns=(INT64, "The same of communication that no compute hides."),
    idle_ns=(INT64, "The same of time in which nothing runs."),
    mfu_pct=(FLOAT64, "Model FLOPs over GPU period times peak, mean over GPUs."),
    slowdown=(FLOAT64, "What stragglers multiply the step by, where operations were logged."),
    launch_slowdown=(FLOAT64, "What late hosts multiply it by."),
    excess_gpu_hours=(FLOAT64, "What stragglers cost over the recorded steps."),
    cause=(TEXT, "Likely cause of that: worker, stage_split, sequence_lengths, …"),
    environment=(TEXT, "Slurm, Kubernetes and Git facts recorded with the run, compact JSON."),
    coverage=(TEXT, "What the facts rest on, compact JSON."),
    htk_version=(TEXT, "Version of htk that read the run."),
)

COSTS = table(
    by=(TEXT, "time, phase, kernel, op, module or comm."),
    name=(TEXT, "What it is."),
    count_per_step=(FLOAT64, "How often in a step, mean over ranks."),
    by_step_ns=(pa.list_(INT64), "Its time in each step, mean over ranks."),
    by_rank_ns=(pa.list_(INT64), "Its time on each rank, mean over steps."),
    least_ns=(pa.list_(INT64), "Its time in each step, the least over ranks."),
)
