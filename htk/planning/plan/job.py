"""A training job as it is described: model, cluster, layout, precision.

Ranks are numbered as Megatron has it: tensor-parallel neighbours first, then context, data, and
pipeline stages last; experts are spread over neighbouring ranks of a stage.
"""

import math
from dataclasses import dataclass

from htk.base.errors import UsageError
from htk.physics.decoder import Decoder
from htk.physics.hardware import Gpu
from htk.physics.memory import CHECKPOINTING, OPTIMIZERS, Layout
from htk.physics.network import NVL72, Fabric, Network, described_network
from htk.physics.training_job import TrainingJob, check_job
from htk.planning.plan.precision import PRECISIONS, Precision, matrix_format, precision_of

STRATEGIES = ("ddp", "zero1", "zero2", "shard_grad_op", "full_shard", "hybrid_shard")
SHARDED = ("shard_grad_op", "full_shard", "hybrid_shard")  # gather parameters layer by layer
SCHEDULES = ("1f1b", "interleaved", "zero_bubble")
OFFLOADS = ("none", "optimizer", "activations")
KERNELS = ("fused", "compiled", "eager")
ATTENTIONS = ("flash", "materialised")
# PyTorch's and DeepSpeed's names of the same.
_ALIASES = {
    "no_shard": "ddp", "zero_1": "zero1", "zero_2": "zero2", "zero3": "full_shard",
    "zero_3": "full_shard", "fsdp": "full_shard", "hsdp": "hybrid_shard",
    "distributed_optimizer": "zero1",
}  # fmt: skip


@dataclass(frozen=True)
class PlannedJob:
    model: Decoder
    gpu: Gpu
    nodes: int = 1
    gpus_per_node: int = 8
    micro_batch: int = 1  # sequences
    seq: int = 2048
    checkpointing: str = "none"  # selective, full
    price: float | None = None  # of a GPU-hour
    accumulation: int = 1  # micro-batches that each pipeline takes in a step
    tensor_parallel: int = 1
    run_tokens: float | None = None
    strategy: str = "full_shard"
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    expert_tensor_parallel: int | None = None  # None: 1 with expert parallelism
    virtual_stages: int = 1  # chunks of layers that a stage holds
    schedule: str = "1f1b"
    sequence_parallel: bool | None = None  # None: with tensor parallelism
    precision: str = ""  # the GPU's 16-bit format
    optimizer: str = "adam"
    lora_rank: int | None = None  # adapters alone are trained
    capacity: float | None = None  # tokens of an expert over its even share; None: none is dropped
    offload: str = "none"
    kernels: str = "fused"  # a vendor's library; compiled: by PyTorch; eager: operator by operator
    attention: str = "flash"  # materialised: scores are written out
    fused_loss: bool = False  # one kernel, which leaves the gradients where the logits were
    overlap_tensor: bool | None = None  # tensor parallelism behind its products; None: with a
    # distributed optimizer and sequence parallelism, as Megatron's recipes have it
    overlap_expert: bool = False  # all-to-all of experts behind other micro-batches
    cuda_graphs: bool = False
    domain: int | None = None  # GPUs that fast links join; None: a node, or 72 of an NVL72
    fabric: Fabric | None = None  # between domains; None: the catalogue's adapters
    link_gbps: float | None = None  # within a domain; None: the catalogue's
    pod_gpus: int = 0  # GPUs beyond which the network narrows; 0: nowhere
    oversubscription: float = 1.0
    watts: float | None = None  # of a GPU; None: its TDP

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategy", canonical_strategy(self.strategy))
        object.__setattr__(self, "precision", self.precision or self.gpu.half_format)
        _check_counts(self)
        _check_choices(self)
        check_job(self.described)

    @property
    def described(self) -> TrainingJob:
        """Return the job as the rules of any job are asked of it."""
        model = self.model
        return TrainingJob(
            ranks=self.nodes * self.gpus_per_node,
            node=self.gpus_per_node,
            tensor=self.tensor_parallel,
            pipeline=self.pipeline_parallel,
            context=self.context_parallel,
            expert=self.expert_parallel,
            expert_tensor=self.expert_tensor,
            virtual=self.virtual_stages,
            strategy=self.strategy,
            micro_batch=self.micro_batch,
            micro_batches=self.accumulation,
            seq=self.seq,
            precision=matrix_format(self.precision),
            gpu=self.gpu,
            layers=model.layers,
            heads=model.heads,
            kv_heads=model.kv_heads,
            experts=model.experts,
        )

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def replicas(self) -> int:
        """Data-parallel ranks: with other sequences each."""
        split = self.tensor_parallel * self.pipeline_parallel * self.context_parallel
        return self.ranks // split

    @property
    def data_ranks(self) -> int:
        """Ranks of a stage that hold the same parameters."""
        return self.replicas * self.context_parallel

    @property
    def expert_tensor(self) -> int:
        """Ranks that share each expert."""
        if self.expert_tensor_parallel is not None:
            return self.expert_tensor_parallel
        return 1 if self.expert_parallel > 1 else self.tensor_parallel

    @property
    def expert_replicas(self) -> int:
        """Ranks of a stage that hold the same experts."""
        stage = self.data_ranks * self.tensor_parallel
        return stage // (self.expert_parallel * self.expert_tensor)

    @property
    def sequence_split(self) -> int:
        """Ranks that share the tokens between products, by sequence parallelism."""
        own = self.sequence_parallel
        return self.tensor_parallel if own or own is None else 1

    @property
    def overlaps_tensor(self) -> bool:
        if self.overlap_tensor is not None:
            return self.overlap_tensor
        return self.strategy == "zero1" and self.sequence_split > 1

    @property
    def tokens_of_rank(self) -> float:
        """Return the tokens of a micro-batch on a rank."""
        return self.micro_batch * self.seq / self.context_parallel

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def format(self) -> Precision:
        return precision_of(self.precision)

    @property
    def link_domain(self) -> int:
        """GPUs that fast links join."""
        if self.domain is not None:
            return self.domain
        return NVL72 if self.gpu.name in ("gb200", "gb300") else self.gpus_per_node

    @property
    def network(self) -> Network:
        return described_network(
            self.gpu,
            self.link_domain,
            self.fabric,
            self.link_gbps,
            self.pod_gpus,
            self.oversubscription,
        )

    @property
    def shards(self) -> int:
        """Ranks over which parameters, or what belongs to them, are spread."""
        if self.strategy == "ddp":
            return 1
        if self.strategy == "hybrid_shard":
            inside = max(self.gpus_per_node // self.tensor_parallel, 1)
            return min(inside, self.data_ranks)
        return self.data_ranks

    @property
    def layout(self) -> Layout:
        """Return the layout that decides the memory."""
        bytes_by_format = self.format
        copies = self.data_ranks // self.shards
        return Layout(
            self.strategy,
            self.shards,
            copies,
            self.tensor_parallel,
            self.pipeline_parallel,
            self.context_parallel,
            self.expert_parallel,
            self.micro_batch,
            self.seq,
            self.accumulation,
            self.checkpointing,
            self.tensor_parallel > 1 and self.sequence_split > 1,
            flash=self.attention == "flash",
            fused_norms=self.kernels != "eager" or not self.model.gated,  # LayerNorm is one kernel
            fused_gates=self.kernels == "fused",
            fused_loss=self.fused_loss,
            virtual=self.virtual_stages,
            expert_tensor=self.expert_tensor,
            parameter_bytes=bytes_by_format.parameter_bytes,
            gradient_bytes=bytes_by_format.gradient_bytes,
            optimizer_bytes=optimizer_bytes(self.optimizer, bytes_by_format),
            trained=self.trained_share,
            element_bytes=bytes_by_format.element_bytes,
            saved_bytes=bytes_by_format.saved_bytes,
            offload_optimizer=self.offload == "optimizer",
            offload_activations=self.offload == "activations",
        )

    @property
    def trained_share(self) -> float:
        """Return the share of parameters that get gradients."""
        if self.lora_rank is None:
            return 1.0
        model = self.model
        widths = 2 * (model.hidden + model.query_width) + 2 * (model.hidden + model.kv_width)
        widths += model.ways * (model.hidden + (model.dense_ffn or model.ffn))
        return min(1.0, self.lora_rank * widths * model.layers / model.parameters)


def canonical_strategy(name: str) -> str:
    """Return htk's name of a strategy, whatever framework names it."""
    lower = name.lower().replace("-", "_")
    return _ALIASES.get(lower, lower)


def optimizer_bytes(name: str, kept: Precision) -> float:
    """Bytes of a trained parameter beside itself and its gradient: none is copied that is in single
    precision already."""
    return max(OPTIMIZERS[name] - (4 if kept.parameter_bytes == 4 and name != "none" else 0), 0.0)


def _check_counts(job: PlannedJob) -> None:
    if min(job.nodes, job.gpus_per_node) < 1:
        raise UsageError("nodes and GPUs per node must be at least 1")
    for name in ("price", "run_tokens", "capacity", "link_gbps", "watts", "oversubscription"):
        value = getattr(job, name)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name} {value:g}: a positive number was expected")
    if job.lora_rank is not None and job.lora_rank < 1:
        raise UsageError(f"LoRA of rank {job.lora_rank}: at least 1 was expected")
    if job.pod_gpus < 0 or (job.pod_gpus and job.pod_gpus < job.link_domain):
        raise UsageError(
            f"a pod of {job.pod_gpus} GPUs is smaller than the {job.link_domain} on fast links"
        )


def _check_choices(job: PlannedJob) -> None:
    for name, value, allowed in (
        ("checkpointing", job.checkpointing, CHECKPOINTING),
        ("strategy", job.strategy, STRATEGIES),
        ("schedule", job.schedule, SCHEDULES),
        ("precision", job.precision, PRECISIONS),
        ("optimizer", job.optimizer, OPTIMIZERS),
        ("offload", job.offload, OFFLOADS),
        ("kernels", job.kernels, KERNELS),
        ("attention", job.attention, ATTENTIONS),
    ):
        if value not in allowed:
            raise UsageError(f"{name} {value!r}: one of {', '.join(allowed)}")
