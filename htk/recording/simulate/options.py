"""The options of a simulated job: model, cluster, strategy, and how untidy reality is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The options of a simulated job, as a file or the command gives them."""

    model: str = "llama2-7b"
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    vocab: int | None = None
    experts: int | None = None  # feed-forwards of a layer
    active_experts: int | None = None  # that each token takes
    gpu: str = "a100-80gb"
    nodes: int = 1
    gpus_per_node: int = 8
    strategy: str = "full_shard"
    fsdp: int = 2
    tensor_parallel: int = 1
    pipeline_parallel: int = 1  # stages of a pipeline, which share out the layers
    virtual_stages: int = 1  # chunks of layers that each of them holds; from 2 on, interleaved
    batched_messages: bool = True  # between stages: those of a call are one kernel
    sequence_parallel: bool = False  # tensor-parallel ranks share tokens between products
    context_parallel: int = 1  # ranks that share each sequence
    context_exchange: str = "all_to_all"  # how keys and values go round; or messages
    expert_parallel: int = 1  # ranks of data parallelism that experts are spread over
    expert_skew: float = 0.0  # spread of the tokens that ranks' experts get, logarithmic
    micro_batch: int = 1
    seq: int = 2048
    accumulation: int = 1
    no_sync: bool = True  # DDP reduces gradients with the last micro-batch alone
    checkpointing: bool = False
    attention: str = "flash"  # one kernel; or materialised: products, a softmax, passes over scores
    fused_loss: bool = False
    optimizer: str = "adam"  # one kernel; adam-foreach, in parts; adam-8bit
    lora_rank: int | None = None  # of adapters on the products of layers, all else frozen
    precision: str = "bf16"
    decode_requests: int = 0  # that a server answers at once; 0: a step of training
    custom_all_reduce: bool = False  # of a server: kernels of its own, which c10d does not see
    context: int = 1024  # tokens that each of them looks back on
    steps: int = 3
    first_step: int = 10  # 0: the recording begins with the job's start-up
    seed: int = 0  # of the cluster: what everything takes there, and by chance
    run: int = 0  # the same cluster again: chance alone falls otherwise
    intra_gbps: float | None = None  # of a GPU, one way; the catalogue's where not given
    inter_gbps: float | None = None  # of a node
    intra_latency_us: float = 0.6  # of a hop between GPUs of a node, by the quickest protocol
    inter_latency_us: float = 2.7  # of a hop to another node
    ranks_only: tuple[int, ...] | None = None
    # realism; all of it can be switched off
    noise: float = 0.01  # spread of kernel times, logarithmic; half of it per step, half per GPU
    jitter_ns: int = 7000  # collectives of all ranks end within this
    contention: bool = True  # compute and communication slow each other
    synchronous: bool = False  # collectives run on the compute stream
    queue: int = 1022  # launches that may wait
    carry_in: int = 0  # kernels launched before the recording
    cut_last_step: bool = False
    stagger_us: float = 0.0  # ranks begin to record within this, before the first step
    clocks: str = "node"  # whose they are: each node has one, or each process its own
    clock_offset_us: float = 0.0  # spread of the clocks
    clock_drift_ppm: float = 0.0
    host_names: bool = True  # are recorded
    heavy_tails: bool = False  # data loading and garbage collection
    programmatic: bool = False  # some kernels begin before the one before them ends
    graphs: bool = False  # each layer is a CUDA graph forward, and another backward
    profiler_ns: int = 350  # cost of recording a CPU event
    sync_records: bool = True
    metadata: bool = True  # of collectives, on their kernels
    split_groups: bool = False  # all groups of a split have one name, as split_group gives them
    named_groups: bool = True  # else c10d records no group, number or id, as before PyTorch 2.3
    stacks: bool = True  # Python calls, with those of nn.Modules
    plants: tuple[str, ...] = ()
