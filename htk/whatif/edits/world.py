"""More or fewer ranks of data parallelism, each with the work it has.

Of one rank alone, what FSDP or DDP records of it tells the sharding. Where neither is seen none is
assumed, and the interval of memory holds both.
"""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from htk.base.columns.types import Floats, Mask
from htk.base.core.humanize import pluralize_count
from htk.base.errors import UsageError
from htk.physics.collective_latency import hops_ns
from htk.whatif.data_groups import data_network
from htk.whatif.edit_arguments import positive_integer
from htk.whatif.edits.no_skew import even_compute
from htk.whatif.from_one_rank import is_of_one_rank, with_replicas
from htk.whatif.group_kinds import described_degree
from htk.whatif.host_cost import remove_calls
from htk.whatif.link_tails import slowest_link
from htk.whatif.missing_ranks import mark_partial
from htk.whatif.network_tiers import read_network, site_narrows, site_words
from htk.whatif.parallel import tensor_degree, tensor_reduces
from htk.whatif.parallelism import (
    Sharded,
    find_replicated,
    find_sharded,
    mark_replicating,
    scale_optimizer,
    shared_tokens,
)
from htk.whatif.recorded_job import job_ranks
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node, rescale_transfers

NAME = "world"
HELP = "Ranks of the job, each with the work that it has now: 32, or nodes by GPUs 4x8."

_UNSTATED = 1.5  # one sigma of transfers between nodes: networks of four times the rate exist
_SKEW = 0.01
_OF_LATENESS = 0.5  # few ranks tell little of how late the last of many is
_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")


def apply(model: StepModel, value: str) -> StepModel:
    nodes, mark, each = value.partition("x")
    ranks = positive_integer(nodes, NAME) * (positive_integer(each, NAME) if mark else 1)
    if is_of_one_rank(model) and ranks > 1:
        return with_replicas(model, ranks, 1, NAME)
    if is_of_one_rank(model):
        return model.with_assumption("there is one rank already")
    alone = _ranks_of_one_replica(model)
    if alone and not ranks % alone:
        node = int(each) if mark else gpus_of_a_node(model)
        in_nodes = replace(model, facts=replace(model.facts, gpus_per_node=node))
        return with_replicas(in_nodes, ranks, alone, NAME)
    now, growing, before = _read_groups(model)
    if now < 1 or before < 1:
        raise UsageError(f"{NAME}: the trace does not say how many ranks its collectives have")
    here = gpus_of_a_node(model)
    node = int(each) if mark else here
    after = before * ranks / now
    if after < 1 or after != int(after):
        raise UsageError(f"{NAME} {value!r}: {now} ranks cannot become {ranks} in groups as now")
    share = _in_node(int(after), ranks, node)
    old_group = (before, _in_node(before, now, here))
    new_group = (int(after), share)
    ratio = _bytes_ratio(model, old_group, new_group)
    tail = slowest_link(model, *(ranks // here for ranks, here in (old_group, new_group)))
    moved = _in_groups(model, growing, old_group, new_group, ratio * tail)
    if node != here:
        moved = _in_other_nodes(model, moved, here, node)
    if after == 1:  # nobody to send gradients, losses or norms to
        of_replicas = model.is_comm & (model.facts.group_size == before)
        of_replicas &= ~tensor_reduces(model) & ~shared_tokens(model)
        moved = even_compute(remove_calls(moved, growing | of_replicas, hooks=False))
    if _is_shared(model):
        moved = scale_optimizer(moved, now / ranks)
    crossing = now <= here and ranks > node
    moved = moved.with_groups(growing, int(after), share)
    later = _delay_last(moved, growing, now, ranks, bool(mark_partial(model)[growing].any()))
    lateness = float((later.lengths() - moved.lengths())[growing].sum())
    lateness /= len(model.graph.ranks) * max(model.graph.period_ns, 1)
    gpus_per_node = node if mark else later.facts.gpus_per_node
    changed = replace(
        later,
        facts=replace(later.facts, gpus_per_node=gpus_per_node),
        devices=model.devices * ranks / now,
        samples=model.samples * ranks / now,
        low_confidence=model.low_confidence or crossing,
    )
    words = [
        f"{pluralize_count(ranks, 'rank')} in place of {now}, each with the work it has, but the "
        "optimizer's where they share it; links as fast as now"
    ]
    if tail != 1:
        words.append(
            f"rings are as fast as their slowest link: that of more is {100 * (tail - 1):+.1f} % "
            "slower, by how much alike transfers differed in the recording"
        )
    if crossing:
        words.append(f"the job would leave its node: {_describe_assumed(model)}")
    uncertainty = _UNSTATED * site_narrows(model, True) if crossing else 0.25
    if crossing and (measured := site_words(model, True)):
        words.append(measured)
    return (
        changed.with_uncertainty("communication", uncertainty)
        .with_uncertainty("skew", _SKEW + _OF_LATENESS * abs(lateness))
        .with_assumption(*words)
    )


def _in_other_nodes(model: StepModel, moved: StepModel, here: int, node: int) -> StepModel:
    """Return the model with hybrid shard groups, which stay as large, in nodes of another size."""
    layout = find_sharded(model)
    if layout is None or layout.strategy != "hybrid_shard":
        return moved
    ranks = layout.ranks
    stride = data_network(model).stride
    old_group = (ranks, min(max(here // stride, 1), ranks))
    new_group = (ranks, min(max(node // stride, 1), ranks))
    of_shards = model.is_collective("all_gather", "reduce_scatter") & ~shared_tokens(model)
    ratio = _bytes_ratio(model, old_group, new_group)
    return _in_groups(moved, of_shards, old_group, new_group, ratio).with_groups(
        of_shards, *new_group
    )


def _in_groups(
    model: StepModel, chosen: Mask, old: tuple[int, int], new: tuple[int, int], ratio: float
) -> StepModel:
    """Return the model with some collectives `ratio` times as long, and with the hops of other
    groups."""
    moved = model.with_lengths(chosen, rescale_transfers(model, chosen, ratio))
    hops = _count_hops(moved, new) - _count_hops(model, old)
    return moved.with_lengths(chosen, moved.lengths() + hops)


def _describe_assumed(model: StepModel) -> str:
    """Return what is assumed of the network between nodes, of which nothing was recorded."""
    adapters = read_network(model).adapters
    if adapters is None:
        return "nothing is known of the network between nodes, which is taken for its links"
    rate = 1 / adapters / gpus_of_a_node(model)
    return (
        f"{rate:.3g} GB/s of a GPU between nodes are assumed, as its kind usually has; --network "
        "roce-400 or inter_gbps=25 states yours"
    )


def _bytes_ratio(model: StepModel, old: tuple[int, int], new: tuple[int, int]) -> float:
    """Return how many times as long the bytes of a collective take in another group; groups are
    ranks, and how many of them each node holds."""
    if old == new or old[0] == 1:
        return 1.0
    if new[0] == 1:
        return 0.0
    net = read_network(model)
    of_old, of_new = ((ranks - 1) / ranks * net.pace(ranks, here) for ranks, here in (old, new))
    return of_new / of_old


def _in_node(group: int, ranks: int, node: int) -> int:
    """Return how many ranks of a group each node holds."""
    return min(max(group * node // max(ranks, node), 1), group)


def _count_hops(model: StepModel, group: tuple[int, int]) -> Floats:
    """Return what each collective takes for hops among so many ranks, so many in each node."""
    hops = np.zeros(len(model.facts.collective))
    rows = np.flatnonzero(model.is_collective(*_KINDS))
    codes = model.facts.collective.codes[rows]
    for code in np.unique(codes).tolist():  # a few
        kind = model.facts.collective.distinct[code] or ""
        same_kind = rows[codes == code]
        if kind == "all_reduce":  # of others hops do not depend on the length
            lengths = model.lengths()[same_kind].tolist()
            hops[same_kind] = [hops_ns(kind, *group, ns) for ns in lengths]
        else:
            hops[same_kind] = hops_ns(kind, *group, 0.0)
    return hops


def _ranks_of_one_replica(model: StepModel) -> int:
    """Return the ranks of a job that share all samples between them; 0: others have more."""
    ways = [model.tensor or tensor_degree(model), described_degree(model, "pipeline") or 1]
    ranks = math.prod(ways)
    has_replicas = find_sharded(model) or find_replicated(model) or ranks != job_ranks(model)
    return 0 if has_replicas or ranks == 1 else ranks


def _read_groups(model: StepModel) -> tuple[int, Mask, int]:
    """Return the ranks of the job; the collectives whose group grows with them, and its size."""
    layout: Sharded | None = find_sharded(model) or find_replicated(model)
    split = (model.tensor or tensor_degree(model)) * (described_degree(model, "pipeline") or 1)
    if layout is None:
        now = int(model.facts.group_size.max(initial=-1))
        if now < 2:
            raise UsageError(f"{NAME}: the trace does not say how many ranks its collectives have")
        return now, model.is_comm & (model.facts.group_size == now), now
    if layout.strategy == "hybrid_shard":
        return split * layout.world, mark_replicating(model), layout.replicas
    if layout.strategy == "ddp":
        return split * layout.world, mark_replicating(model), layout.ranks
    growing = model.is_collective("all_gather", "reduce_scatter")
    return split * layout.world, growing, layout.ranks


def _is_shared(model: StepModel) -> bool:
    """Do all ranks share the optimizer's work?"""
    layout = find_sharded(model)
    return layout is not None and layout.strategy != "hybrid_shard"


def _delay_last(model: StepModel, growing: Mask, now: int, ranks: int, unseen: bool) -> StepModel:
    """Return the last of more ranks arrives later: μ + σ·Φ⁻¹((N - 0.375) / (N + 0.25)).

    μ and σ: of when the recorded ranks arrived at each collective; where others were not recorded
    (`unseen`), what these wait for the last of all tells it.
    """
    if now < 2:
        return model
    times = _expected_last(ranks) / _expected_last(now)
    if unseen:
        return replace(model, arrival_scale=model.arrival_scale * times)
    waited = _mean_waits(model)
    return model.with_lengths(growing & (waited > 0), model.lengths() + waited * (times - 1))


def _mean_waits(model: StepModel) -> Floats:
    """Return how long the mean rank waited for the last one at each collective."""
    graph = model.graph
    edge = np.flatnonzero(model.graph.edges("arrive"))
    joins = graph.dst[edge]
    members = np.bincount(joins, minlength=len(graph.time))
    each = graph.time[joins] - graph.time[graph.src[edge]]
    waits = np.bincount(joins, each, len(graph.time))
    mean = np.append(waits / np.maximum(members, 1), 0.0)
    joined = model.run_edge >= 0
    node = np.where(joined, graph.src[model.run_edge], -1)
    return np.where(model.is_comm, mean[node], 0.0)


def _expected_last(ranks: int) -> float:
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
