"""How long a transfer should take: the latency of its steps, and its bytes at the links' rate.

t = α + W / β, W the bytes times the bus factor. A ring of n ranks takes n - 1 steps, so that α
grows with the ranks, while W / β does not: of 8 MiB over 256 ranks most time is latency. α is what
so many steps usually take, corrected by the recording's own transfers of that kind where they have
several sizes. Within a node t is that of measured collectives, where the GPU's were measured. What
is left of the time beside α tells of the links; a call that leaves little is bound by latency, and
tells little.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import Floats, Ints, Mask
from htk.physics.bandwidth import find_bus_factor
from htk.physics.detected import common_device, list_devices
from htk.physics.hardware import Gpu
from htk.physics.latency_bandwidth import fit_segments
from htk.physics.link_rates import group_gbps, scale_up_gbps
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.complete_collectives import CompleteCollectives
from htk.quantities.measures.transfers import FAST

USUAL = 0.75  # of its links' rate is what large messages reach
UNKNOWN = 10.0  # standard deviation, in logarithms, of a rate that nothing is known of
_SURE = {"given": 0.2, "data sheet": 0.3, "usual installations": 0.25}
_COMPARED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")  # with the links' rate
_MEASURED = ("all_reduce", "all_gather", "reduce_scatter")  # within a node, on some GPUs
_BEGIN_NS = 8_000.0  # to set a transfer up
_STEP_NS = 1_500.0  # of a step to a GPU of the node
_FAR_STEP_NS = 6_000.0  # of one to another node
_UNSURE_OF_STEPS = 0.8  # standard deviation, in logarithms: protocols differ by a factor of five
_UNSURE_OF_PROTOCOL = 1.0  # the same of the bandwidth of a call that is latency alone
_UNSURE_OF_MESSAGES = 0.4  # the same of one to another node: few channels carry it
_WINDOW = 16  # times the smallest size that a curve is fitted to; smaller calls run other protocols
_SCATTER = 0.04  # of a point of a curve, at least
_LEAST_SHARE = 0.1  # of a call's time that its bytes take, if it is to tell of links


@dataclass(frozen=True)
class LinkRates:
    """One-way rates in GB/s where they are known, and where they come from."""

    intra_gbps: float | None  # of a GPU to its neighbours
    inter_gbps: float | None  # of all adapters of a node
    nic_from: str  # given, usual installations
    gpu: Gpu | None = None  # of all ranks, whose own collectives count; None: unlike ones, or given

    @classmethod
    def from_calls(
        cls, calls: CollectiveCalls, link: float | None, nic: float | None
    ) -> "LinkRates":
        names = calls.ranks["device_name"].unique().to_pylist()
        links = [rate for rate in map(scale_up_gbps, names) if rate]
        usual = min(
            (d.gpu.scale_out_gbps for d in list_devices(calls.ranks) if d.gpu), default=None
        )
        adapters = usual * calls.hosts.per_node if usual else None
        origin = "given" if nic else "usual installations"
        common = None if link else common_device(calls.ranks)
        gpu = common.gpu if common else None
        return cls(link or min(links, default=None), nic or adapters, origin, gpu)

    def limit(self, calls: CollectiveCalls, members: tuple[int, ...]) -> tuple[float, str]:
        """Return the rate that a group cannot pass (NaN: not known), and what it rests on."""
        hosts = calls.hosts.of_rank
        nodes = [hosts.get(rank) for rank in members]
        if None in nodes:
            return np.nan, ""
        if len(set(nodes)) == 1:
            return float(self.intra_gbps or np.nan), "data sheet"
        most = max(nodes.count(node) for node in set(nodes))
        rate = group_gbps(self.intra_gbps, self.inter_gbps, most, calls.hosts.per_node)
        return float(rate or np.nan), self.nic_from


@dataclass(frozen=True)
class TransferTimes:
    """What transfers should take; a value for each of the collectives."""

    collectives: CompleteCollectives
    rates: LinkRates

    @cached_property
    def kinds(self) -> Groups:
        """Transfers that are alike but for their size."""
        return Groups.by_keys(self.collectives.like)

    @cached_property
    def limits(self) -> list[tuple[float, str]]:
        """Return the rate that each group cannot pass, and what it rests on."""
        return [self.rates.limit(self.collectives.calls, m) for m in self.collectives.members]

    @cached_property
    def has_rate(self) -> Mask:
        """Whether the rate of the links of each transfer is known, and its type is held to it."""
        of_group = np.array([rate for rate, _ in self.limits], np.float64)
        limit = of_group[self.collectives.group]
        rows = self.collectives.calls.rows
        compared = rows.is_type(*_COMPARED)[self.collectives.row] | self._leaves_node
        return np.asarray(compared & ~np.isnan(limit))

    @cached_property
    def _leaves_node(self) -> Mask:
        """Whether each transfer is of messages to another node."""
        sends = self.collectives.calls.rows.is_type("send", "send_recv")[self.collectives.row]
        return np.asarray(sends & (self.collectives.like[:, 2] > 1))

    @cached_property
    def wire_ns(self) -> Floats:
        """The time of the bytes: measured, else at the usual share of the links' rate; at 1 GB/s if
        that is not known, which only compares like calls."""
        of_group = np.array([rate for rate, _ in self.limits], np.float64)
        rate = np.where(self.has_rate, of_group[self.collectives.group], 1.0)
        usual = self.collectives.moved / (USUAL * rate)
        latency, _ = self.latencies
        measured = np.maximum(self.measured_ns - latency, _LEAST_SHARE * self.measured_ns)
        return np.where(np.isnan(measured), usual, measured)

    @cached_property
    def measured_ns(self) -> Floats:
        """What such transfers within a node were measured to take (NaN: they were not)."""
        measured = np.full(len(self.collectives), np.nan)
        gpu = self.rates.gpu
        types = self.collectives.calls.rows.types
        for kind, (code, ranks, nodes) in enumerate(self.kinds.keys[:, :3].tolist()):  # a few kinds
            bus_factor = find_bus_factor(types[code], ranks)
            if gpu is None or nodes != 1 or not bus_factor or types[code] not in _MEASURED:
                continue
            from htk.physics.kernel_atlas import SHAPE  # where there is anything to look up
            from htk.physics.kernel_time import estimate_kernels

            of_kind = np.flatnonzero(self.kinds.group_ids == kind)
            size = self.collectives.moved[of_kind] / bus_factor
            sizes = {"bytes": size, "ranks": np.full(len(size), float(ranks))}
            estimate = estimate_kernels(gpu, types[code], "bf16", sizes)
            near = estimate.nearness <= SHAPE
            measured[of_kind[near]] = estimate.expected[near]
        return measured

    @cached_property
    def unsure_of_rate(self) -> Floats:
        """Standard deviation of the usual rate, in logarithms: what a call is bound by latency, it
        may run a protocol that gives bandwidth up for fewer waits."""
        of_group = np.array([_SURE.get(origin, UNKNOWN) for _, origin in self.limits])
        of_links = of_group[self.collectives.group]
        unsure = np.hypot(of_links, _UNSURE_OF_PROTOCOL * (1 - self.usual_wire_shares))
        unsure = np.where(self._leaves_node, np.hypot(unsure, _UNSURE_OF_MESSAGES), unsure)
        return np.where(self.has_rate, unsure, UNKNOWN)

    @cached_property
    def latencies(self) -> tuple[Floats, Floats]:
        """The latency of each transfer in ns, and its standard deviation; equal for like ones."""
        latency = np.zeros(len(self.kinds))
        sigma = np.zeros(len(self.kinds))
        for kind, (usual, unsure) in enumerate(self._usual_latencies):  # a few kinds
            of_kind = np.flatnonzero(self.kinds.group_ids == kind)
            fitted, scatter = _fitted_latency(*self.fast_times(of_kind))
            unsure *= max(1.0, fitted / usual)  # it is a share of whatever the latency is
            weights = np.array([1 / unsure**2, 1 / scatter**2])
            latency[kind] = weights @ np.array([usual, fitted]) / weights.sum()
            sigma[kind] = weights.sum() ** -0.5
        return latency[self.kinds.group_ids], sigma[self.kinds.group_ids]

    @cached_property
    def _usual_latencies(self) -> list[tuple[float, float]]:
        """Return what the steps of each kind usually take in ns, and its standard deviation."""
        types = self.collectives.calls.rows.types
        keys = self.kinds.keys.tolist()
        return [usual_latency_ns(types[key[0]], *key[1:4]) for key in keys]

    @cached_property
    def usual_wire_shares(self) -> Floats:
        """The share of each transfer's time that its bytes take on usual links (1: not known)."""
        of_kind = np.array([usual for usual, _ in self._usual_latencies])
        latency = of_kind[self.kinds.group_ids]
        return np.where(self.has_rate, self.wire_ns / (latency + self.wire_ns), 1.0)

    def fast_times(self, transfers: Ints) -> tuple[Floats, Floats]:
        """Return each size of these transfers and the ns that the fastest tenth of it takes."""
        sizes = Groups.by_keys(self.collectives.moved[transfers].astype(np.int64))
        fast = sizes.quantiles(self.collectives.time_ns[transfers], [FAST])[0]
        return sizes.keys.ravel().astype(np.float64), fast

    @cached_property
    def sized(self) -> Groups:
        """Transfers that are alike in all."""
        return Groups.by_keys([self.kinds.group_ids, self.collectives.moved.astype(np.int64)])

    @cached_property
    def fast_ns(self) -> Floats:
        """What the fastest tenth of like transfers of that size takes."""
        fast = self.sized.quantiles(self.collectives.time_ns, [FAST])[0]
        return np.asarray(fast[self.sized.group_ids])

    @cached_property
    def is_comparable(self) -> Mask:
        """Whether another group made a like transfer, or the links' rate is known."""
        groups = self.sized.distinct(self.collectives.group)[self.sized.group_ids]
        return np.asarray(self.has_rate | (groups > 1))

    @cached_property
    def wire_shares(self) -> Floats:
        """The share of each transfer's time that its bytes take: the rest is latency."""
        latency, _ = self.latencies
        return np.asarray(np.clip(1 - latency / self.fast_ns, 0.0, 1.0))

    @property
    def bound_by_latency(self) -> int:
        """The number of transfers whose bytes take less than half of their time."""
        return int((self.wire_shares < 0.5).sum())

    @cached_property
    def tells_of_links(self) -> Mask:
        """Whether bytes take enough of a transfer's time, it is large among like ones, and there is
        something to compare it with."""
        moved = self.collectives.moved.astype(np.int64)
        largest = self.kinds.max(moved)[self.kinds.group_ids]
        is_large = _WINDOW * moved >= largest
        share = np.minimum(self.wire_shares, self.usual_wire_shares)
        return np.asarray(is_large & (share >= _LEAST_SHARE) & self.is_comparable)

    @cached_property
    def expected_ns(self) -> Floats:
        """What each transfer should take at the links' usual rate (NaN: that is not known)."""
        latency, _ = self.latencies
        return np.where(self.has_rate, latency + self.wire_ns, np.nan)


def usual_latency_ns(kind: str, ranks: int, nodes: int, most_of_node: int) -> tuple[float, float]:
    """Return the latency of a ring's steps in ns, and its standard deviation.

    A ring enters each node once. NCCL may also go up and down a tree, whose depth grows with the
    logarithm of the nodes; a ring's latency is then only the most that it may be.
    """
    steps: Mapping[str, int] = {
        "all_reduce": 2 * (ranks - 1), "all_gather": ranks - 1, "reduce_scatter": ranks - 1,
        "broadcast": ranks - 1, "reduce": ranks - 1,
    }  # fmt: skip
    count = max(steps.get(kind, 1), 1)
    far = count * nodes / ranks if nodes > 1 else 0.0
    ring = (count - far) * _STEP_NS + far * _FAR_STEP_NS
    if kind != "all_reduce" or nodes < 2:
        return _BEGIN_NS + ring, _UNSURE_OF_STEPS * (_BEGIN_NS + ring)
    depth = (most_of_node - 1) * _STEP_NS + float(np.log2(nodes)) * _FAR_STEP_NS
    tree = min(2 * depth, ring)
    middle = _BEGIN_NS + float(np.sqrt(ring * tree))
    unsure = np.hypot(_UNSURE_OF_STEPS, np.log(ring / tree) / 2)
    return middle, float(unsure * middle)


def _fitted_latency(moved: Floats, time_ns: Floats) -> tuple[float, float]:
    """Return the latency that the largest sizes of like transfers tell, and its standard deviation:
    infinite where one size does not tell it."""
    large = _WINDOW * moved >= moved.max(initial=0)
    moved = moved[large]
    time_ns = time_ns[large]
    curve = fit_segments(moved, time_ns / 1e3, 1)
    if not curve or not curve[0].tells_latency:
        return 0.0, np.inf
    system = np.column_stack([1 / time_ns, moved / time_ns])
    scatter = max(curve[0].residual, _SCATTER)
    variance = scatter**2 * np.linalg.inv(system.T @ system)[0, 0]
    return 1e3 * curve[0].latency_us, float(np.sqrt(variance))
