"""The training job that a recording shows, as far as it does: what it cannot tell is not known."""

import re

import numpy as np

from htk.base.columns.arrow import read_numbers
from htk.physics.training_job import TrainingJob
from htk.quantities.graph.left_out import left_out_of
from htk.whatif.group_kinds import described_degree
from htk.whatif.micro_batch_count import micro_batches
from htk.whatif.number_format import recorded_format
from htk.whatif.operator_shapes import operator_shapes
from htk.whatif.parallel import tensor_degree
from htk.whatif.parallelism import Sharded, find_replicated, find_sharded, shared_tokens
from htk.whatif.shapes import read_inputs
from htk.whatif.sharding_wrapper import read_wrapper
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node

LENGTH_SECOND = re.compile(r"aten::_(flash|efficient)_attention")  # in shapes; then heads


def recorded_job(model: StepModel) -> TrainingJob:
    """Return the job that a recorded step is of."""
    return model.once("job", lambda: _recorded_job(model))


def _recorded_job(model: StepModel) -> TrainingJob:
    seen = read_inputs(model)
    layout = find_sharded(model) or find_replicated(model)
    pipeline = described_degree(model, "pipeline")
    context = described_degree(model, "context")
    heads, kv_heads = _count_heads(model)
    tensor = tensor_degree(model)
    length = seen.tokens / seen.batch if seen.tokens and seen.batch else None
    strategy = layout.strategy if layout else _lone_strategy(model, tensor * (pipeline or 1))
    seq = length * context if length and context else None
    return TrainingJob(
        ranks=job_ranks(model),
        node=gpus_of_a_node(model),
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=described_degree(model, "expert"),
        sequence_parallel=bool(shared_tokens(model).any()),
        strategy=strategy,
        shards=_count_shards(layout),
        micro_batch=seen.batch,
        micro_batches=micro_batches(model) or None,
        seq=seq,
        precision=recorded_format(model),
        gpu=model.facts.device,
        heads=heads * tensor if heads else None,
        kv_heads=kv_heads * tensor if kv_heads else None,
        layers=_count_layers(model, pipeline, context),
        even_stages=True,
    )


def job_ranks(model: StepModel) -> int:
    """Return the ranks of the job: those that its largest group, or the recording, tells."""
    tables = model.facts.tables
    world_size = int(read_numbers(tables["ranks"]["world_size"], 0).max(initial=0))
    left_out = left_out_of(tables)
    recorded = len(model.graph.ranks) if left_out is None else left_out.ranks
    return max(int(model.facts.group_size.max(initial=1)), world_size, recorded)


def _lone_strategy(model: StepModel, split: int) -> str | None:
    """Return the strategy that a job is wrapped for whose ranks share all samples, in so many
    ways; None: not known."""
    if job_ranks(model) != split:
        return None
    return read_wrapper(model.facts.tables["annotations"]["name"].to_pylist())


def _count_shards(layout: Sharded | None) -> int | None:
    if layout is None:
        return None
    return 1 if layout.strategy == "ddp" else layout.ranks


def _count_heads(model: StepModel) -> tuple[int | None, int | None]:
    """Return the heads of queries and of keys on a rank; None: no attention tells them."""
    length = read_inputs(model).tokens
    for op, dims in model.facts.op.pairs_with(model.facts.dims):
        if not dims or not op or "attention" not in op or "backward" in op or not length:
            continue
        shapes = [shape for shape in operator_shapes(dims) if len(shape) == 4][:2]
        if len(shapes) == 2:
            head_axis = 2 if LENGTH_SECOND.match(op) else 1
            return int(shapes[0][head_axis]), int(shapes[1][head_axis])
    return None, None


def _count_layers(model: StepModel, stages: int | None, parts: int | None) -> int | None:
    """Return the layers, by attention's forward kernels; None: there are none, or not known how
    many stages share them or in how many parts a layer attends."""
    rank = model.graph.activities.rank == model.graph.ranks[0]
    kernels = rank & model.facts.family.isin("attention")
    kernels &= ~model.facts.backward & ~model.facts.recomputed
    count = int(np.count_nonzero(kernels))
    each = micro_batches(model) * (parts or 0)
    if not count or not each or count % each or stages is None:
        return None
    return count // each * stages
