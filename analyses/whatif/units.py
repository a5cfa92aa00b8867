"""Where the units of a model are in a step: what runs for each, forward and backward."""

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htk.analyses.whatif.scene import Scene

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Region:
    """Activities of the compute stream, first and last."""

    first: int
    last: int


def compute_lane(scene: Scene, rank: int) -> Ints:
    """Activities of the rank's busiest compute stream, in order."""
    acts = scene.graph.activities
    mine = (acts.rank == rank) & scene.is_compute & (acts.call >= 0)
    lanes = np.unique(acts.lane[mine])
    busy = [int(acts.length[mine & (acts.lane == lane)].sum()) for lane in lanes.tolist()]
    if not busy:
        return np.empty(0, np.int64)
    found = np.flatnonzero((acts.lane == lanes[int(np.argmax(busy))]) & (acts.rank == rank))
    return found[np.argsort(acts.start[found], kind="stable")]


def waited_for(scene: Scene, which: int, lane: Ints) -> int:
    """The last activity of a stream that this one waits for; -1: none."""
    graph = scene.graph
    mine = (graph.dst == graph.start[which]) & graph.edges("event")
    known = np.isin(graph.end[lane], graph.src[mine])
    if known.any():
        return int(lane[known][-1])
    acts = graph.activities
    done = lane[acts.end[lane] <= acts.start[which]]
    return int(done[-1]) if len(done) else -1


def backward_regions(scene: Scene, lane: Ints, ready: list[int]) -> list[Region]:
    """What runs before each of these, since the one before it, in the backward pass."""
    place = {int(a): k for k, a in enumerate(lane.tolist())}
    back = [place[a] for a in lane[scene.facts.backward[lane]].tolist()]
    begin = back[0] if back else 0
    found = []
    for one in ready:
        end = max(place.get(one, begin), begin)
        found.append(Region(int(lane[begin]), int(lane[end])))
        begin = min(end + 1, len(lane) - 1)
    return found


def layers(scene: Scene, lane: Ints) -> list[Region]:
    """Layers of the forward pass: each round one attention kernel, cut half-way to the next."""
    attention = np.array([scene.facts.family[a] == "attention" for a in lane.tolist()], bool)
    back = scene.facts.backward[lane]
    forward = np.flatnonzero(~back & (np.cumsum(back) == 0))
    places = np.flatnonzero(attention & ~back & (np.cumsum(back) == 0))
    if len(places) < 2:
        return []
    return _cut(lane, places, max(int(forward[0]), 1), int(forward[-1]))  # 0: the batch comes in


def backward_layers(scene: Scene, lane: Ints, count: int) -> list[Region]:
    """The same of the backward pass, last layer first."""
    attention = np.array([scene.facts.family[a] == "attention" for a in lane.tolist()], bool)
    back = np.flatnonzero(scene.facts.backward[lane])
    places = np.flatnonzero(attention & scene.facts.backward[lane])
    if count < 2 or len(places) < count:
        return []
    each = len(places) // count  # kernels of one layer's attention
    return _cut(
        lane, places[: each * count].reshape(count, each)[:, 0], int(back[0]), int(back[-1])
    )


def _cut(lane: Ints, places: Ints, low: int, high: int) -> list[Region]:
    middles = ((places[1:] + places[:-1]) // 2).tolist()
    firsts = [low, *(m + 1 for m in middles)]
    lasts = [*middles, high]
    return [Region(int(lane[a]), int(lane[b])) for a, b in zip(firsts, lasts, strict=True)]


def weights_between(scene: Scene, lane: Ints, region: Region) -> int:
    """Elements of the matrices that a region's products multiply with, as shapes tell."""
    place = {int(a): k for k, a in enumerate(lane.tolist())}
    total = 0
    for which in lane[place[region.first] : place[region.last] + 1].tolist():
        op, dims = scene.facts.op[which] or "", scene.facts.dims[which]
        if not dims or scene.facts.family[which] != "gemm" or "bmm" in op:
            continue
        shapes = [s for s in json.loads(dims) if isinstance(s, list) and len(s) == 2]
        if len(shapes) > 1:
            total += shapes[-1][0] * shapes[-1][1]
    return total
