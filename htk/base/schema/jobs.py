"""What a whole job logs all the time: a row for each operation of each worker, and the layout."""

import pyarrow as pa

from htk.base.schema.columns import TEXT, table

_I32, _I64 = pa.int32(), pa.int64()

JOB_OPERATIONS = table(
    rank=(_I32, "Global rank."),
    cycle=(_I32, "Always 0: rows of one job are one recording, however many files hold them."),
    dp_rank=(_I32, "Data-parallel rank of the worker; null: not recorded."),
    stage=(_I32, "Pipeline stage of the worker; null: not recorded."),
    chunk=(_I32, "Model chunk within the stage (interleaved schedules); null: not recorded."),
    micro_batch=(_I32, "Micro-batch; null: not recorded, or none."),
    step=(_I32, "Training step."),
    index_in_type=(_I32, "Number among operations of its type in the step, as recorded."),
    type=(TEXT, "forward_compute, backward_send, params_all_gather, … optimizer."),
    start_ns=(_I64, "Start, absolute or since some moment that all ranks share."),
    end_ns=(_I64, "End."),
)

JOB_LAYOUTS = table(
    job=(TEXT, "Name of the job, as recorded."),
    dp_size=(_I32, "Data-parallel replicas."),
    pp_size=(_I32, "Pipeline stages."),
    tp_size=(_I32, "Ranks that share each layer (tensor parallel)."),
    cp_size=(_I32, "Ranks that share each sequence (context or sequence parallel)."),
    vpp_size=(_I32, "Model chunks on each stage."),
    world_size=(_I32, "Ranks of the job."),
    environment=(TEXT, "Slurm, Kubernetes and Git facts that htk.capture recorded, compact JSON."),
)
