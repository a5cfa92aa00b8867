"""How faces show the answer to a what-if: its columns and its question."""

from htk.base.core.chart import Bar
from htk.base.core.label import Label
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table

# What maps and sweeps of a what-if go through, unless told otherwise.
BATCHES = ("0.5x", "1x", "2x", "4x", "8x")
SHARDINGS = ("full_shard", "shard_grad_op", "hybrid_shard", "ddp")

RETURNS = table(
    whatif=(TEXT, "The edits."),
    step_time_ns=(INT64, "Predicted GPU step; null: refused."),
    step_time_ns_lo50=(INT64, "Half of such predictions come true above this …"),
    step_time_ns_hi50=(INT64, "… and below this."),
    step_time_ns_lo90=(INT64, "Nine of ten above this …"),
    step_time_ns_hi90=(INT64, "… and below this."),
    measured_step_time_ns=(INT64, "The recorded step, or as given."),
    change_pct=(FLOAT64, "Predicted over measured step, less one."),
    time_per_sample_change_pct=(FLOAT64, "The same, of the time for one sample of a rank."),
    tokens_per_s=(
        FLOAT64,
        "Of the whole job; of a server all tokens, those of prompts too; null where nothing tells "
        "the tokens.",
    ),
    tokens_per_s_lo90=(FLOAT64, "The same at the high end of the step's 90 % interval."),
    tokens_per_s_hi90=(FLOAT64, "The same at its low end."),
    generated_tokens_per_s=(FLOAT64, "Of a server: tokens given to requests; else null."),
    tpot_ns=(INT64, "Of a server: time per output token of a request; null: none is told."),
    tpot_ns_lo90=(INT64, "Low end of its 90 % interval."),
    tpot_ns_hi90=(INT64, "High end of its 90 % interval."),
    tokens_per_s_per_gpu=(FLOAT64, "The same of one GPU."),
    mfu_pct=(
        FLOAT64,
        "Model FLOPs (2 a multiply-add, attention by the pairs its mask leaves, no recompute) over "
        "step and dense peak; null where shapes or GPU are not known.",
    ),
    exposed_comm_ns=(INT64, "Communication that no compute hides, mean over ranks."),
    idle_ns=(INT64, "Time that a GPU runs nothing, mean over ranks."),
    peak_memory_bytes=(
        INT64,
        "Predicted peak of the fullest GPU, with what the allocator loses, context and "
        "communicators; null: neither allocations nor enough shapes were recorded.",
    ),
    allocated_bytes=(INT64, "Of that peak, what tensors take, as torch's allocator counts."),
    p_oom=(FLOAT64, "Probability of running out of memory; null: peak or GPU not known."),
    cost_per_million_tokens=(FLOAT64, "At the price given; null: no price, or no tokens."),
    cost_per_million_tokens_lo90=(FLOAT64, "Low end of its 90 % interval."),
    cost_per_million_tokens_hi90=(FLOAT64, "High end of its 90 % interval."),
    cost_per_run=(FLOAT64, "At that price, for the tokens of a run, failures included."),
    run_hours=(FLOAT64, "For the tokens of a run, failures included."),
    goodput_pct=(FLOAT64, "Time that checkpoints, restarts and lost work leave."),
    energy_j_per_token=(
        FLOAT64,
        "At the power given, else the GPU's limit, which is an upper bound.",
    ),
    naive_no_change_ns=(INT64, "Prediction of no effect: the measured step."),
    naive_linear_ns=(INT64, "Prediction in proportion to the samples per rank."),
    gain_over_sigma=(
        FLOAT64,
        "Expected gain in time per sample over its standard deviation; below 1 there may be none.",
    ),
    regret_pct=(FLOAT64, "If wrong (one in twenty), time per sample grows by this."),
    mark=(TEXT, "In sweeps: out of memory, the last that fits, launch-bound, under one wave."),
    verdict=(TEXT, "Of the replay of the recorded step: trusted, indicative or refused, and why."),
    standing=(TEXT, "Of the answer: tested within so many percent, indicative, or outside that."),
    waterfall=(TEXT, "The change by cause in ns, JSON; sums to the whole."),
    sigma_by_source=(
        TEXT,
        "Uncertainty by source (replay, kernel, network, skew, distance, site, profiler, ranks "
        "left out): one standard deviation in percent of the step, JSON.",
    ),
    intervals_held=(
        TEXT,
        "How often 90 % intervals of its edits held, on measured jobs of other sources and on "
        "simulated ones.",
    ),
    next_recording=(TEXT, "The further recording that would narrow the interval most."),
    assumptions=(TEXT, "In words."),
)


TRAFFIC = table(
    variant=(TEXT, "recorded, or predicted: of which step."),
    type=(TEXT, "Of the collective."),
    group_size=(INT32, "Ranks that take part."),
    scope=(TEXT, "within a node, across nodes, or unknown."),
    count_mean=(FLOAT64, "Mean number of collectives of a rank in the step."),
    message_bytes_mean=(FLOAT64, "Mean bytes that a rank hands in, in the step."),
    wire_bytes_mean=(
        FLOAT64,
        "Mean bytes that a rank sends: (N-1)/N of the buffer; of all_reduce twice that.",
    ),
)


TRAFFIC_LABEL = Label(
    "whatif_traffic",
    "What does a rank send in a step, recorded and predicted?",
    Bar("type", ("wire_bytes_mean",)),
)
LABEL = Label(
    "whatif",
    "What would a step take if this were changed?",
    Bar("whatif", ("step_time_ns",)),
)
