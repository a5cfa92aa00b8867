"""More or fewer ranks of data parallelism, each with the work it has."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from htk.analyses.whatif.scene import Scene
from htk.analyses.whatif.transfers import rescaled
from htk.errors import UsageError

NAME = "world"
HELP = "Ranks of the job, each with the work that it has now: 32."

_GPUS_OF_A_NODE = 8


def apply(scene: Scene, value: str) -> Scene:
    now = int(scene.facts.group_size.max(initial=-1))
    if now < 2:
        raise UsageError(f"{NAME}: the trace does not say how many ranks its collectives have")
    if not value.isdigit() or int(value) < 1:
        raise UsageError(f"{NAME} {value!r}: a number of ranks was expected")
    ranks = int(value)
    whole = scene.is_comm & (scene.facts.group_size == now)
    ratio = ((ranks - 1) / ranks) / ((now - 1) / now)
    moved = scene.with_lengths(whole, rescaled(scene, whole, ratio))
    node = scene.facts.gpus_per_node or _GPUS_OF_A_NODE
    crossing = now <= node < ranks
    changed = replace(_later(moved, whole, now, ranks), devices=scene.devices * ranks / now)
    changed = replace(changed, samples=scene.samples * ranks / now, low_confidence=crossing)
    doubt = 0.5 if crossing else 0.15
    words = [f"{ranks} ranks in place of {now}, each with the work it has; links as fast as now"]
    if crossing:
        words.append("the job would leave its node: its first step onto the slower network")
    return changed.doubted("communication", doubt).doubted("skew", 0.02).said(*words)


def _later(scene: Scene, whole: np.ndarray, now: int, ranks: int) -> Scene:
    """The last of more ranks arrives later: μ + σ·Φ⁻¹((N - 0.375) / (N + 0.25))."""
    acts = scene.graph.activities
    each = np.array(
        [int(acts.length[scene.is_compute & (acts.rank == r)].sum()) for r in scene.graph.ranks]
    )
    if len(each) < 2:
        return scene.said("one rank is at hand: that more ranks arrive later is left out")
    sigma = float(each.std())
    later = sigma * (_expected_last(ranks) - _expected_last(now))
    last = np.flatnonzero(whole)[np.argsort(acts.start[whole])]
    length = scene.lengths().astype(np.float64)
    for rank in scene.graph.ranks:
        mine = last[acts.rank[last] == rank]
        length[mine[-1:]] += later
    return scene.with_lengths(whole, length)


def _expected_last(ranks: int) -> float:
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
