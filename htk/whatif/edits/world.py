"""More or fewer ranks of data parallelism, each with the work it has."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from htk.columns.types import Mask
from htk.core.humanize import pluralize
from htk.errors import UsageError
from htk.whatif.edit_arguments import whole
from htk.whatif.missing_ranks import partial
from htk.whatif.network_tiers import network
from htk.whatif.parallel import tensor_degree
from htk.whatif.parallelism import Sharded, owned, replicated, replicating, sharded
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node, rescaled

NAME = "world"
HELP = "Ranks of the job, each with the work that it has now: 32, or nodes by GPUs 4x8."


def apply(scene: StepModel, value: str) -> StepModel:
    now, growing, before = _groups(scene)
    if now < 1 or before < 1:
        raise UsageError(f"{NAME}: the trace does not say how many ranks its collectives have")
    nodes, mark, each = value.partition("x")
    ranks = whole(nodes, NAME) * (whole(each, NAME) if mark else 1)
    here = gpus_of_a_node(scene)
    node = int(each) if mark else here
    after = before * ranks / now
    if after < 1 or after != int(after):
        raise UsageError(f"{NAME} {value!r}: {now} ranks cannot become {ranks} in groups as now")
    share = max(before * here // max(now, here), 1)  # of a group, in one node
    old = (before - 1) / before * network(scene).pace(before, min(share, before))
    share = max(int(after) * node // max(ranks, node), 1)
    new = (after - 1) / after * network(scene).pace(int(after), min(share, int(after)))
    moved = scene.with_lengths(growing, rescaled(scene, growing, new / old if old else 1.0))
    if _shares(scene):
        moved = owned(moved, now / ranks)
    crossing = now <= here and ranks > node
    moved = moved.with_groups(growing, int(after), min(share, int(after)))
    changed = replace(
        _later(moved, growing, now, ranks),
        devices=scene.devices * ranks / now,
        samples=scene.samples * ranks / now,
        low_confidence=scene.low_confidence or crossing,
    )
    words = [
        f"{pluralize(ranks, 'rank')} in place of {now}, each with the work it has, but the "
        "optimizer's where they share it; links as fast as now"
    ]
    if crossing:
        words.append("the job would leave its node: its first step onto the slower network")
    doubt = 0.5 if crossing else 0.15
    return (
        changed.with_uncertainty("communication", doubt)
        .with_uncertainty("skew", 0.01)
        .with_assumption(*words)
    )


def _groups(scene: StepModel) -> tuple[int, Mask, int]:
    """Ranks of the job; the collectives whose group grows with them, and its size."""
    layout: Sharded | None = sharded(scene) or replicated(scene)
    split = scene.tensor or tensor_degree(scene)
    if layout is None:
        now = int(scene.facts.group_size.max(initial=-1))
        if now < 2:
            raise UsageError(f"{NAME}: the trace does not say how many ranks its collectives have")
        return now, scene.is_comm & (scene.facts.group_size == now), now
    if layout.strategy == "hybrid_shard":
        return split * layout.world, replicating(scene), layout.replicas
    if layout.strategy == "ddp":
        return split * layout.world, replicating(scene), layout.ranks
    growing = scene.is_collective("all_gather", "reduce_scatter")
    return split * layout.world, growing, layout.ranks


def _shares(scene: StepModel) -> bool:
    """Do all ranks share the optimizer's work?"""
    layout = sharded(scene)
    return layout is not None and layout.strategy != "hybrid_shard"


def _later(scene: StepModel, growing: Mask, now: int, ranks: int) -> StepModel:
    """The last of more ranks arrives later: μ + σ·Φ⁻¹((N - 0.375) / (N + 0.25)).

    σ: of what the ranks at hand compute in a step; where others are not, what these wait for the
    last of all tells it.
    """
    if now > 1 and partial(scene)[growing].any():
        return replace(
            scene, arrival_scale=scene.arrival_scale * _expected_last(ranks) / _expected_last(now)
        )
    acts = scene.graph.activities
    each = np.array(
        [int(acts.length[scene.is_compute & (acts.rank == r)].sum()) for r in scene.graph.ranks]
    )
    if len(each) < 2:
        return scene
    sigma = float(each.std())
    later = sigma * (_expected_last(ranks) - _expected_last(now))
    last = np.flatnonzero(growing)[np.argsort(acts.start[growing])]
    length = scene.lengths().astype(np.float64)
    for rank in scene.graph.ranks:
        of_rank = last[acts.rank[last] == rank]
        length[of_rank[-1:]] += later
    return scene.with_lengths(growing, length)


def _expected_last(ranks: int) -> float:
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
