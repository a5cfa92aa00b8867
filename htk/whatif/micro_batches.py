"""Micro-batches of a step: how many there are, and how long one more would take."""

from dataclasses import dataclass, replace

import numpy as np

from htk.columns.types import Mask
from htk.errors import UsageError
from htk.graph.fidelity import exposed, idle
from htk.graph.replay import NEVER, replay
from htk.whatif.fsdp_units import compute_lane
from htk.whatif.parallelism import replicated, replicating, sharded
from htk.whatif.shapes import inputs
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import followed

_SHARE = 0.1  # of the kernels of a step that trains, at least, are of its backward pass


def micro_batches(scene: StepModel) -> int:
    """Backward passes of the step; 0: none seen."""
    lane = compute_lane(scene, scene.graph.ranks[0])
    back = scene.facts.backward[lane]
    if back.sum() < _SHARE * len(lane):
        return 0
    return int(back[:1].sum() + (back[1:] & ~back[:-1]).sum())


def samples(scene: StepModel, name: str) -> float:
    """Of a step, on all ranks together."""
    batch = inputs(scene).batch
    spread = sharded(scene) or replicated(scene)
    if batch is None:
        raise UsageError(f"{name}: the recorded batch is not known (record_shapes=True would tell)")
    ranks = scene.parallel or (spread.world if spread else 1)
    return batch * scene.activation_scale * ranks * max(micro_batches(scene), 1)


@dataclass(frozen=True)
class MicroBatch:
    """What one more takes, in ns: in all, with communication exposed, and with GPUs idle."""

    ns: float
    exposed: float
    idle: float


def micro_batch(scene: StepModel) -> MicroBatch:
    """Return the step without what it does once, over its micro-batches."""
    rest, many = _repeated(_as_recorded(scene)), micro_batches(scene)
    after = replay(rest.graph, rest.weight, rest.wrap_weight)
    return MicroBatch(
        after.period_ns / many,
        exposed(rest.graph, after.steady) / many,
        idle(rest.graph, after.steady, after.period_ns) / many,
    )


def _as_recorded(scene: StepModel) -> StepModel:
    """Return the scene without time that edits have added to the step as a whole."""
    return replace(scene, wrap_weight=scene.wrap_weight - sum(scene.added.values()))


def _repeated(scene: StepModel) -> StepModel:
    """Without optimizer and what follows it, nor reductions that wait for the last micro-batch."""
    once = _after_backward(scene) & ~scene.is_comm
    if sharded(scene) is None:
        once |= replicating(scene)
    bare = scene.with_lengths(once, 0)
    graph, calls = scene.graph, scene.graph.activities.call
    late = np.zeros(len(graph.call_start), bool)
    for rank in graph.ranks:
        back = scene.facts.backward & (graph.activities.rank == rank) & (calls >= 0)
        last = int(graph.calls.start[calls[back]].max(initial=-1))
        late |= (graph.calls.rank == rank) & (graph.calls.start > last)
    nodes = np.zeros(len(graph.time), bool)
    nodes[graph.call_start[late]] = nodes[graph.call_end[late]] = True
    heads = nodes[graph.dst]
    weight = np.where(
        heads & graph.edges("call", "host_gap"), np.minimum(bare.weight, 0), bare.weight
    )
    weight = np.where(heads & graph.edges("sync"), NEVER, weight)
    repeated = replace(bare, weight=weight)
    return in_order(repeated) if len(graph.wrap_src) else repeated


def in_order(scene: StepModel) -> StepModel:
    """Return a communicator's first collective comes after its last one of what is repeated."""
    graph, size = scene.graph, scene.facts.group_size
    acts, firsts, lasts = graph.activities, [], []
    for rank in graph.ranks:
        of_rank = scene.is_comm & (acts.rank == rank)
        for ranks in np.unique(size[of_rank]).tolist():  # groups of a rank, told by their size
            of_group = np.flatnonzero(of_rank & (size == ranks))
            firsts.append(int(of_group[np.argmin(acts.start[of_group])]))
            lasts.append(int(of_group[np.argmax(acts.end[of_group])]))
    return followed(scene, np.array(lasts, np.int64), np.array(firsts, np.int64))


def _after_backward(scene: StepModel) -> Mask:
    acts = scene.graph.activities
    trailing = np.zeros(len(acts.start), bool)
    for rank in scene.graph.ranks:
        of_rank = acts.rank == rank
        last = int(acts.end[of_rank & scene.facts.backward & scene.is_compute].max(initial=-1))
        trailing |= of_rank & (acts.start >= last)
    return trailing
