"""The configuration of a simulated job: model, cluster, strategy, and how untidy reality is."""

from dataclasses import dataclass
from typing import NamedTuple

from htk.base.core.stated_counts import RANKS
from htk.base.errors import UsageError
from htk.physics.decoder import Decoder
from htk.physics.hardware import Gpu, gpu
from htk.physics.memory import Layout, Memory, compute_peak_memory, model_size
from htk.physics.presets import decoder, find_preset
from htk.physics.wire import STRATEGIES
from htk.recording.simulate.options import Options
from htk.recording.simulate.plant_options import Value, check_plant, read_plant
from htk.recording.simulate.sharing import check_divides, check_multiple

OPTIMIZERS = ("adam", "adam-foreach", "adam-8bit")
ATTENTION = ("flash", "materialised")
CLOCKS = ("node", "process")
EXCHANGES = ("all_to_all", "messages")
_COUNTS = (
    *("nodes", "gpus_per_node", "micro_batch", "seq", "steps", "accumulation", "queue"),
    *("tensor_parallel", "pipeline_parallel", "virtual_stages"),
    *("context_parallel", "expert_parallel"),
)  # at least 1

_AMOUNTS = (
    *("first_step", "noise", "jitter_ns", "carry_in", "stagger_us", "profiler_ns"),
    *("clock_offset_us", "clock_drift_ppm", "intra_latency_us", "inter_latency_us"),
    *("intra_gbps", "inter_gbps"),
)  # at least 0
_SMALLEST = 1e-6  # by less nothing is divided
_LARGEST = 1e15
_MOST_PASSES = 100_000_000  # through a layer, each of some kB

# Tiles of matrix products, and their rates relative to the best.
TILES = ((256, 128, 1.0), (128, 128, 0.93), (128, 64, 0.82), (64, 64, 0.66))


class Pass(NamedTuple):
    """An operator that passes over memory, and its gradient: tensors moved by each."""

    name: str
    moved: int
    back: int
    gradient: str = "mul"


GATED_NORM = (Pass("pow", 2, 3), Pass("mean", 1, 2), Pass("mul", 2, 3), Pass("mul", 2, 3))
PLAIN_NORM = (Pass("native_layer_norm", 2, 4),)


@dataclass(frozen=True)
class Config(Options):
    """A job by its options, and what follows from them."""

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def data_parallel(self) -> int:
        return self.stage_ranks // self.tensor_parallel

    @property
    def stage_ranks(self) -> int:
        """The number of ranks of a stage of the pipeline: all where there is none."""
        return self.ranks // self.pipeline_parallel

    @property
    def tokens(self) -> int:
        """The number of tokens of a micro-batch on a rank; of a server one for each request."""
        return self.decode_requests or self.micro_batch * self.seq // self.context_parallel

    @property
    def own_expert_parameters(self) -> int:
        """The number of parameters of the experts that a rank holds."""
        model = self.decoder
        every = model.moe_layers * model.experts * model.expert_parameters
        return every // self.expert_parallel // self.tensor_parallel

    @property
    def held_parameters(self) -> int:
        """The number of parameters of a rank before sharding; of experts, only its own."""
        model = self.decoder
        split = self.tensor_parallel
        every = model.moe_layers * model.experts * model.expert_parameters
        return (model.parameters - every) // split + self.own_expert_parameters

    @property
    def shards(self) -> int:
        """The number of ranks over which parameters are spread."""
        if self.strategy == "ddp":
            return 1
        if self.strategy == "hybrid_shard":
            return max(1, min(self.gpus_per_node, self.stage_ranks) // self.tensor_parallel)
        return self.data_parallel

    @property
    def replicas(self) -> int:
        return self.data_parallel // self.shards

    @property
    def job_ranks(self) -> int:
        """The number of ranks of a job: of servers, those that share a model are one by itself."""
        shared = self.tensor_parallel * self.expert_parallel
        return shared if self.decode_requests else self.ranks

    @property
    def written(self) -> tuple[int, ...]:
        """The ranks whose traces are written."""
        chosen = tuple(range(self.ranks)) if self.ranks_only is None else self.ranks_only
        return tuple(r for r in chosen if r != self.missing)

    @property
    def planted(self) -> dict[str, dict[str, Value]]:
        """The options of each plant, by its name."""
        return dict(read_plant(text) for text in self.plants)

    @property
    def missing(self) -> int | None:
        """The rank that is planted as missing."""
        options = self.planted.get("missing_rank")
        return None if options is None else int(options.get("rank", self.ranks - 1))

    @property
    def starts_up(self) -> bool:
        """Whether the recording begins with the job, whose first step creates its context, streams
        and communicators and loads its kernels."""
        return self.first_step == 0

    @property
    def element_bytes(self) -> int:
        return 2 if self.precision == "bf16" else 4

    @property
    def element_type(self) -> str:
        """The type of tensors' elements, as the profiler writes it."""
        return "c10::BFloat16" if self.precision == "bf16" else "float"

    @property
    def decoder(self) -> Decoder:
        sizes = (
            *("layers", "hidden", "heads", "kv_heads", "ffn", "vocab"),
            *("experts", "active_experts"),
        )
        overrides = {k: getattr(self, k) for k in sizes if getattr(self, k) is not None}
        if find_preset(self.model) is None:  # its layers are those of LLaMA
            overrides["gated"] = True
        return decoder(self.model, **overrides)

    @property
    def device(self) -> Gpu:
        return gpu(self.gpu)

    @property
    def tiles(self) -> tuple[tuple[int, int, float], ...]:
        return TILES

    @property
    def norm(self) -> tuple[Pass, ...]:
        """The operators that a norm of a layer launches."""
        return GATED_NORM if self.decoder.gated else PLAIN_NORM

    @property
    def attention_rate(self) -> tuple[float, float]:
        """The range of attention's rate relative to that of matrix products: least and most."""
        return 0.52, 0.62

    @property
    def bucket_bytes(self) -> int:
        """The bytes of gradients that DistributedDataParallel reduces together."""
        return 25 * 1024 * 1024

    @property
    def gradients_sent(self) -> float:
        """The bytes of gradients that ranks reduce, in times of those there are."""
        return 1.0

    @property
    def gathers_ahead(self) -> int:
        """The number of FSDP2 units whose parameters are gathered before they are used; 0: none."""
        return 2

    @property
    def owners(self) -> float:
        """The number of ranks over which the optimizer's work is spread."""
        return self.shards

    @property
    def layout(self) -> Layout:
        """The layout over GPUs, which decides the memory of a step."""
        checkpointing = "full" if self.checkpointing else "none"
        return Layout(
            self.strategy,
            self.shards,
            self.replicas,
            self.tensor_parallel,
            self.pipeline_parallel,
            context=self.context_parallel,
            expert=self.expert_parallel,
            micro_batch=self.micro_batch,
            seq=self.seq,
            micro_batches=self.accumulation,
            virtual=self.virtual_stages,
            checkpointing=checkpointing,
            sequence_parallel=self.sequence_parallel,
            element_bytes=self.element_bytes,
            saved_bytes=self.element_bytes,
            parameter_bytes=self.element_bytes,
            gradient_bytes=self.element_bytes,
            flash=self.attention == "flash",
            fused_loss=self.fused_loss,
            optimizer_bytes=(2 if self.optimizer == "adam-8bit" else 8)
            + (4 - self.element_bytes) * 2,
            trained=self.trained,
        )

    @property
    def optimizer_bytes(self) -> int:
        """The bytes of two moments of a parameter, and of a copy of what is not single."""
        return (2 if self.optimizer == "adam-8bit" else 8) + (0 if self.element_bytes == 4 else 4)

    @property
    def adapter_parameters(self) -> int:
        """The number of parameters of a layer's adapters: two matrices for each product."""
        model = self.decoder
        inputs = (5 if model.gated else 2) * model.hidden + model.hidden + model.ffn
        if not model.gated:
            inputs += model.hidden
        outputs = 3 * model.hidden + 2 * model.kv_width + (2 if model.gated else 1) * model.ffn
        return (self.lora_rank or 0) * (inputs + outputs)

    @property
    def trained(self) -> float:
        """The share of parameters that have gradients."""
        if not self.lora_rank:
            return 1.0
        return self.adapter_parameters * self.decoder.layers / self.held_parameters

    @property
    def memory(self) -> Memory:
        return compute_peak_memory(model_size(self.decoder), self.layout)


def check_config(config: Config) -> Config:
    """Return the configuration, or raise UsageError if there can be no such job."""
    if config.strategy not in STRATEGIES:
        raise UsageError(f"no strategy {config.strategy!r}; there are {', '.join(STRATEGIES)}")
    if config.precision not in ("bf16", "tf32", "fp32"):
        raise UsageError(f"no precision {config.precision!r}; there are bf16, tf32, fp32")
    if config.precision == "tf32" and not config.device.has("tf32"):
        raise UsageError(f"{config.device.name} has no tf32 matrix products; take fp32")
    if config.fsdp not in (1, 2):
        raise UsageError(f"no FSDP {config.fsdp}; there are 1, 2")
    if config.clocks not in CLOCKS:
        raise UsageError(f"no clocks of a {config.clocks!r}; there are {', '.join(CLOCKS)}")
    if config.context_exchange not in EXCHANGES:
        there = ", ".join(EXCHANGES)
        raise UsageError(f"no context_exchange {config.context_exchange!r}; there are {there}")
    if config.optimizer not in OPTIMIZERS:
        raise UsageError(f"no optimizer {config.optimizer!r}; there are {', '.join(OPTIMIZERS)}")
    if config.attention not in ATTENTION:
        raise UsageError(f"no attention {config.attention!r}; there are {', '.join(ATTENTION)}")
    _check_adapters(config)
    for name in _COUNTS:
        if not RANKS.believes(getattr(config, name)):
            raise UsageError(f"{name} is {getattr(config, name)}, not 1 to {RANKS.most:,}")
    for name in _AMOUNTS:
        if (amount := getattr(config, name)) and not _SMALLEST <= amount < _LARGEST:
            raise UsageError(f"{name} is {amount}, not 0 or {_SMALLEST:g} to {_LARGEST:g}")
    if config.starts_up and (config.stagger_us or config.carry_in):
        raise UsageError("nothing runs before step 0: no stagger_us and no carry_in with it")
    _check_size(config)
    _check_layout(config)
    _check_server(config)
    for name, plants in config.planted.items():
        _check_planted(config, name, plants)
    if not config.written or not set(config.written) <= set(range(config.ranks)):
        raise UsageError(f"ranks to write must be of 0 to {config.ranks - 1}, and one at least")
    _check_memory(config)
    return config


def _check_adapters(config: Config) -> None:
    """Raise UsageError unless adapters are of a job whose frozen weights nobody gathers."""
    if config.lora_rank is not None and config.lora_rank < 1:
        raise UsageError(f"lora_rank is {config.lora_rank}, not 1 or more")
    plain = config.strategy == "ddp" and config.tensor_parallel == config.pipeline_parallel == 1
    if config.lora_rank and (not plain or config.experts):
        raise UsageError("lora_rank goes with strategy ddp, without other parallelism or experts")
    if config.attention != "flash" and config.context_parallel > 1:
        raise UsageError("materialised attention does not go with context_parallel")


def _check_size(config: Config) -> None:
    """Raise UsageError for a job whose traces no disk would hold."""
    if config.ranks > RANKS.most:
        raise UsageError(f"a job of {config.ranks:,} ranks; at most {RANKS.most:,} are simulated")
    passes = config.steps * config.accumulation * config.decoder.layers * len(config.written)
    if passes > _MOST_PASSES:
        raise UsageError(
            f"{passes:,} passes through layers would be written, at most {_MOST_PASSES:,}; record "
            "fewer steps, or fewer ranks (--ranks-only)"
        )


def _check_layout(config: Config) -> None:
    """Raise UsageError unless ranks, heads, layers and experts can be shared out evenly."""
    model = config.decoder
    tensor = config.tensor_parallel
    heads = {"gpus_per_node": config.gpus_per_node, "kv_heads": model.kv_heads, "ffn": model.ffn}
    check_divides("tensor_parallel", tensor, heads)
    if config.sequence_parallel:
        if tensor == 1:
            raise UsageError("sequence_parallel goes with tensor_parallel, which is 1")
        check_divides("tensor_parallel", tensor, {"tokens of a micro-batch": config.tokens})
    _check_pipeline(config)
    data = {"data-parallel ranks": config.data_parallel}
    check_divides("expert_parallel", config.expert_parallel, data | {"experts": model.experts})
    check_divides("context_parallel", config.context_parallel, data | {"seq": config.seq})
    if not 0 <= config.expert_skew < 2:
        raise UsageError(f"expert_skew is {config.expert_skew:g}, and must be 0 to 2")
    if config.expert_parallel > 1 and config.strategy != "ddp":
        raise UsageError("expert_parallel goes with strategy ddp")
    if config.graphs and max(tensor, config.context_parallel, config.expert_parallel) > 1:
        raise UsageError(
            "graphs hold no collectives: no tensor_parallel, context_parallel or expert_parallel"
        )


def _check_pipeline(config: Config) -> None:
    """Raise UsageError unless stages can share ranks, nodes and layers evenly."""
    stages = config.pipeline_parallel
    chunks = config.virtual_stages
    layers = config.decoder.layers
    groups = config.ranks // config.tensor_parallel
    check_divides("pipeline_parallel", stages, {"layers": layers, "groups of ranks": groups})
    if stages == 1:
        if chunks > 1:
            raise UsageError("virtual_stages goes with pipeline_parallel")
        return
    check_divides("virtual_stages", chunks, {"layers of a stage": layers // stages})
    if chunks > 1:
        why = "(pipeline_parallel), as virtual_stages asks"
        check_multiple("accumulation", config.accumulation, stages, why)
    here = config.stage_ranks
    node = config.gpus_per_node
    if here % node and node % here:
        raise UsageError(f"stages of {here} ranks and nodes of {node}: one must divide the other")


def _check_server(config: Config) -> None:
    """Raise UsageError unless a server can answer so."""
    if config.decode_requests < 0 or config.context < 1:
        raise UsageError("a server answers requests ≥ 1 of context ≥ 1")
    if config.decode_requests and config.pipeline_parallel > 1:
        raise UsageError("a server answers without pipeline_parallel")
    if config.custom_all_reduce and not config.decode_requests:
        raise UsageError("custom_all_reduce goes with decode_requests")


def _check_planted(config: Config, name: str, options: dict[str, Value]) -> None:
    """Raise UsageError unless there are the ranks, nodes, steps and links of what is planted."""
    last = config.first_step + config.steps - 1
    stages = config.pipeline_parallel
    ranges = {
        "rank": (0, config.ranks - 1),
        "node": (0, config.nodes - 1),
        "to": (0, config.nodes - 1),
        "nic": (0, config.gpus_per_node - 1),
        "stage": (0, stages - (1 if name == "straggler" else 2)),
        "step": (config.first_step, last),
        "rotate": (0, 1),
        "times": (1, 1000),
    }
    check_plant(name, options, ranges)
    if "to" in options and options["to"] == options.get("node", config.nodes - 1):
        raise UsageError(f"{name}: a link leads from a node to another one")


def _check_memory(config: Config) -> None:
    needed = config.memory.total / 1e9
    there = config.device.memory_gb
    if needed > there:
        raise UsageError(
            f"out of memory: a step needs {needed:.1f} GB and {config.device.device_name} has"
            f" {there:g}; shard more, take a smaller micro-batch or --checkpointing"
        )
