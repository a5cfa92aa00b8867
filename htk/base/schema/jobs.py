"""What a whole job logs all the time: a row for each operation of each worker, and the layout."""

from htk.base.schema.columns import INT32, INT64, TEXT, table

JOB_OPERATIONS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Always 0: rows of one job are one recording, however many files hold them."),
    dp_rank=(INT32, "Data-parallel rank of the worker; null: not recorded."),
    stage=(INT32, "Pipeline stage of the worker; null: not recorded."),
    chunk=(INT32, "Model chunk within the stage (interleaved schedules); null: not recorded."),
    micro_batch=(INT32, "Micro-batch; null: not recorded, or none."),
    step=(INT32, "Training step."),
    index_in_type=(INT32, "Number among operations of its type in the step, as recorded."),
    type=(TEXT, "forward_compute, backward_send, params_all_gather, … optimizer."),
    start_ns=(INT64, "Start, absolute or since some moment that all ranks share."),
    end_ns=(INT64, "End."),
)

JOB_LAYOUTS = table(
    job=(TEXT, "Name of the job, as recorded."),
    dp_size=(INT32, "Data-parallel replicas."),
    pp_size=(INT32, "Pipeline stages."),
    tp_size=(INT32, "Ranks that share each layer (tensor parallel)."),
    cp_size=(INT32, "Ranks that share each sequence (context or sequence parallel)."),
    vpp_size=(INT32, "Model chunks on each stage."),
    world_size=(INT32, "Ranks of the job."),
    environment=(TEXT, "Slurm, Kubernetes and Git facts that htk.capture recorded, compact JSON."),
)
