"""Peak memory after an edit, and how likely it is not to fit.

The model of `htk.physics.memory` tells what the recorded layout and the edited one hold. Where
allocations were recorded their peak is the anchor: state moves by as much as the model says, what
was activations grows by its ratio. Where they were not, the model's own peak is the answer, with a
wider interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from htk.physics.hardware import gpu
from htk.physics.memory import SIGMA, Layout, Memory, ModelSize, allocated, memory, p_oom

_SURE = 0.8  # of activations by the model: the least that the recorded peak is said to hold
_MEASURED_SIGMA, _CHANGED_SIGMA = 0.03, 0.08
_FROM_SHAPES_SIGMA = 0.1  # what shapes leave open of a model, beside the uncertainty of any peak
_KEPT = {"on": "full", "off": "none"}


@dataclass(frozen=True)
class Held:
    """What a GPU held at its peak in the recording."""

    size: ModelSize  # as far as the recording shows it; 0: not
    layout: Layout
    capacity: float | None
    static: float = 0.0  # least that was allocated
    measured: float | None = None  # the recorded peak
    node: int = 8  # GPUs

    @cached_property
    def reckoned(self) -> Memory:
        """The memory that the model predicts for the recorded layout."""
        return memory(self.size, self.layout)

    @property
    def activations(self) -> float:
        """The bytes of the recorded peak that grow with the batch.

        At the peak fewer units may be gathered than at most, so it is no less than the model's.
        """
        by_model = self.reckoned
        reckoned = by_model.activations + by_model.logits
        if self.measured is None:
            return reckoned
        rest = self.measured - self.static
        return max(rest - by_model.gathered - by_model.buffers, min(_SURE * reckoned, rest))


def after(
    before: Held, edits: Sequence[tuple[str, str]], kept: float
) -> tuple[int | None, float | None]:
    """Return the peak, in bytes, and the probability that it does not fit.

    `kept`: tokens of a rank's micro-batch, over the recorded. Null where experts move: a recording
    does not tell their parameters from others.
    """
    asked = dict(edits)
    if "ep" in asked and not before.size.expert_parameters:
        return None, None
    now = before.reckoned
    then = memory(before.size, layout_after(before, asked, kept))
    capacity = _capacity(before, asked)
    if before.measured is None:
        peak = then.total
        sigma = math.hypot(SIGMA, _FROM_SHAPES_SIGMA)
        return round(peak), None if capacity is None else p_oom(peak, capacity, sigma)
    reckoned = now.activations + now.logits
    ratio = (then.activations + then.logits) / reckoned if reckoned else kept
    change = then.state - now.state + before.activations * (ratio - 1)
    peak = max(before.measured + change, 0.0)
    if capacity is None:
        return round(peak), None
    moved = abs(math.log(max(peak, 1.0) / before.measured))
    sigma = math.hypot(_MEASURED_SIGMA, _CHANGED_SIGMA * min(moved, 2.0))
    return round(peak), p_oom(allocated(peak), capacity - then.reserved, sigma)


def layout_after(before: Held, asked: Mapping[str, str], kept: float) -> Layout:
    """Return the layout after these edits; `kept`: tokens of a rank's micro-batch, over now."""
    now = before.layout
    tensor = _number(asked.get("tp"), now.tensor)
    context = _number(asked.get("cp"), now.context)
    stages = asked.get("pp", "").removeprefix("stages=").partition(",")[0]
    pipeline = _number(stages, now.pipeline)
    world = asked.get("world")
    if world is not None and now.tensor > 1:
        nodes, _, each = world.partition("x")
        world = str(max(_number(nodes, 1) * _number(each, 1) // now.tensor, 1))
    strategy, shards, ranks = sharding_after(
        now.strategy,
        now.shards,
        now.shards * now.replicas,
        before.node,
        {**asked, "world": world} if world else asked,
    )
    ways = max(tensor // now.tensor, 1) * max(pipeline // now.pipeline, 1)
    if ways > 1:  # data parallelism shrinks by as much
        replicas = max(ranks // max(shards, 1) // ways, 1)
        shards = max(min(shards, ranks // ways), 1)
    else:
        replicas = max(ranks // max(shards, 1), 1)
    # edits of tensor and context parallelism scale what a rank keeps of a micro-batch
    scaled = kept * (tensor / now.tensor) * (context / now.context)
    checkpointing = asked.get("checkpointing", now.checkpointing)
    return replace(
        now,
        strategy=strategy,
        shards=shards,
        replicas=replicas,
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        micro_batch=now.micro_batch * scaled,
        micro_batches=now.micro_batches * max(pipeline // now.pipeline, 1),
        sequence_parallel=now.sequence_parallel or "sp" in asked,
        checkpointing=_KEPT.get(checkpointing, checkpointing),
    )


def sharding_after(
    strategy: str, shards: int, ranks: int, node: int, asked: Mapping[str, str]
) -> tuple[str, int, int]:
    """Return the strategy, the ranks in a shard group, and all ranks, after these edits."""
    name, _, size = asked.get("sharding", strategy).partition(":")
    nodes, _, each = asked.get("world", "").partition("x")
    if nodes.isdigit() and (not each or each.isdigit()):
        ranks = int(nodes) * int(each or 1)
    if name == "ddp":
        return name, 1, ranks
    if name != "hybrid_shard":
        return name, ranks, ranks
    if "sharding" not in asked:
        return name, shards, ranks
    return name, int(size) if size.isdigit() else max(min(node, ranks // 2), 1), ranks


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdigit() and int(text) else otherwise


def _capacity(before: Held, asked: Mapping[str, str]) -> float | None:
    """Return the memory of the GPU, in bytes: the recorded one or an edit's."""
    other = asked.get("hardware")
    return gpu(other).memory_bytes if other else before.capacity
