"""The job that edits make of a recorded one: valid, or refused before anything is replayed.

`global=` is the batch of the job after all edits, whatever their order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.training_job import TrainingJob, check_job, is_valid, with_count
from htk.whatif.edit_arguments import on_or_off, parse_factor, positive_integer
from htk.whatif.edits.pp import stages_and_chunks
from htk.whatif.edits.seq import mean_length

Edits = Sequence[tuple[str, str]]
_GLOBAL = "global="
_KEPT = {"on": "full", "off": "none", "selective": "selective"}
FORMATS = ("fp8", "bf16", "fp16", "tf32", "fp32")
_RANKS_OF = {"tp": "tensor", "cp": "context", "ep": "expert"}


def edited_job(job: TrainingJob, edits: Edits) -> TrainingJob:
    """Return the job after edits; raise UsageError where there can be no such job.

    What a recording shows that could not be either is not held against its edits.
    """
    asked = dict(edits)
    shaped = _with_sharding(job, _with_layout(_with_gpus(job, asked), asked), asked)
    can_be = is_valid(job)
    if can_be:
        check_job(shaped)
    edited = _with_batch(shaped, asked, (shaped.pipeline or 1) / (job.pipeline or 1))
    if can_be:
        check_job(edited)
    return edited


def with_own_batch(job: TrainingJob, edits: Edits) -> tuple[tuple[str, str], ...]:
    """Return the edits with the micro-batch and micro-batches of a rank in place of `global=`."""
    edited = edited_job(job, edits)
    stages = (edited.pipeline or 1) / (job.pipeline or 1)
    own = {"batch": edited.micro_batch, "accumulation": (edited.micro_batches or 0) / stages}
    return tuple(
        (name, f"{own[name]:g}") if value.startswith(_GLOBAL) and name in own else (name, value)
        for name, value in edits
    )


def _with_gpus(job: TrainingJob, asked: Mapping[str, str]) -> TrainingJob:
    """Return the job on other GPUs, or on more or fewer."""
    if "hardware" in asked:
        job = replace(job, gpu=gpu(asked["hardware"]))
    if "precision" in asked:
        if asked["precision"] not in FORMATS:
            raise UsageError(f"precision {asked['precision']!r}: one of {', '.join(FORMATS)}")
        job = replace(job, precision=asked["precision"])
    if "world" in asked:
        nodes, mark, each = asked["world"].partition("x")
        ranks = positive_integer(nodes, "world")
        if mark:
            node = positive_integer(each, "world")
            job = replace(job, node=node)
            ranks *= node
        job = replace(job, ranks=ranks)
    return job


def _with_layout(job: TrainingJob, asked: Mapping[str, str]) -> TrainingJob:
    """Return the job with other parallelism."""
    for name, field in _RANKS_OF.items():
        if name in asked:
            job = with_count(job, field, positive_integer(asked[name], name))
    job = _with_kernels(job, asked)
    if "sp" in asked:
        job = replace(job, sequence_parallel=on_or_off(asked["sp"], "sp"))
    elif job.tensor == 1:
        job = replace(job, sequence_parallel=False)
    if "checkpointing" in asked:
        kept = asked["checkpointing"]
        job = replace(job, checkpointing=_KEPT.get(kept, kept))
    if asked.get("prefetch_depth", "").isdigit():
        job = replace(job, ahead=int(asked["prefetch_depth"]))
    if asked.get("graphs") == "on":
        job = replace(job, captured=True)
    if "pp" not in asked:
        return job
    stages, chunks = stages_and_chunks(asked["pp"])
    ratio = stages / (job.pipeline or 1)
    many = None if job.micro_batches is None else job.micro_batches * ratio
    return replace(job, pipeline=stages, virtual=chunks, micro_batches=many)


def _with_kernels(job: TrainingJob, asked: Mapping[str, str]) -> TrainingJob:
    """Return the job with other kernels, which decide what it keeps in memory."""
    if asked.get("attention") == "flash":
        job = replace(job, flash=True)
    if asked.get("loss") == "fused":
        job = replace(job, fused_loss=True)
    if asked.get("optimizer") == "8bit":
        job = replace(job, eight_bit=True)
    if "lora" in asked:
        job = replace(job, adapter_rank=positive_integer(asked["lora"], "lora"))
    return job


def _with_sharding(before: TrainingJob, job: TrainingJob, asked: Mapping[str, str]) -> TrainingJob:
    """Return the job with its parameters spread over the ranks that it has now.

    Shards of a node become those of a node in which others hold them, as `hybrid_shard` means them:
    of another size, or with more ranks or fewer to a layer.
    """
    name, _, size = asked.get("sharding", job.strategy or "").partition(":")
    if not name or not job.data_ranks:  # that there are too few ranks is said elsewhere
        return job
    data = job.data_ranks
    shards = data
    if name == "ddp":
        shards = 1
    elif name == "hybrid_shard":
        is_of_node = before.shards == before.node_shards
        usual = job.shards if name == job.strategy and not is_of_node else job.node_shards
        shards = positive_integer(size, "sharding") if size else max(min(usual or 1, data), 1)
        if shards == data > 1:  # nobody else holds the same shard
            name = "full_shard"
    return replace(job, strategy=name, shards=shards)


def _with_batch(job: TrainingJob, asked: Mapping[str, str], stages: float) -> TrainingJob:
    """Return the job with another length, micro-batch and number of micro-batches.

    `stages`: of the pipeline, over those recorded, which take as many times the micro-batches.
    """
    if "seq" in asked:
        job = replace(job, seq=mean_length(asked["seq"], job.seq, job.micro_batch))
    batch = asked.get("batch", "")
    many = asked.get("accumulation", "")
    if batch.startswith(_GLOBAL) and many.startswith(_GLOBAL):
        raise UsageError("batch and accumulation are both given global=: give one of them")
    if many and not many.startswith(_GLOBAL):
        job = _with_micro_batches(job, many, stages)
    if batch and not batch.startswith(_GLOBAL):
        job = replace(job, micro_batch=_scale_count(batch, job.micro_batch, "batch"))
    if batch.startswith(_GLOBAL):
        others = _multiply_known(job.replicas, job.micro_batches, name="batch")
        job = replace(job, micro_batch=parse_factor(batch.removeprefix(_GLOBAL), "batch") / others)
    if many.startswith(_GLOBAL):
        others = _multiply_known(job.replicas, job.micro_batch, name="accumulation")
        samples = parse_factor(many.removeprefix(_GLOBAL), "accumulation")
        job = replace(job, micro_batches=samples / others)
    return job


def _with_micro_batches(job: TrainingJob, value: str, stages: float) -> TrainingJob:
    """Return the job with so many micro-batches, each of them cut for the stages of a pipeline."""
    now = None if job.micro_batches is None else job.micro_batches / stages
    many = _scale_count(value, now, "accumulation")
    return job if many is None else replace(job, micro_batches=many * stages)


def _scale_count(value: str, now: float | None, name: str) -> float | None:
    """Return what '2x' makes of what is now, or '64' in its place."""
    if not value.strip().endswith("x"):
        return parse_factor(value, name)
    return None if now is None else now * parse_factor(value, name)


def _multiply_known(*counts: float | None, name: str) -> float:
    """Return the product of counts that global= needs, or raise UsageError."""
    total = 1.0
    for count in counts:
        if not count:
            raise UsageError(
                f"{name} global=: the recorded batch, micro-batches or layout is not known"
                " (record_shapes=True would tell); give a factor such as 2x"
            )
        total *= count
    return total
