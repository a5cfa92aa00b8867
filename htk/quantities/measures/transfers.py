"""Transfers that tell how fast communication is: of benchmarks, and of the trace itself.

A matched collective's transfer lasts from its last start to its last end. Without matches a
collective of one rank transfers at least as fast as the fastest tenth of the calls like it.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, read_booleans, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Floats
from htk.physics.bandwidth import find_bus_factor
from htk.quantities.measures.collective_calls import CollectiveCalls, find_group_scopes
from htk.quantities.measures.complete_collectives import CompleteCollectives

FAST = 0.10


@dataclass(frozen=True)
class Transfers:
    """Points of one kind: the same type, level and number of ranks, from the same basis."""

    basis: str  # a source of benchmarks; matched; fastest tenth
    type: str
    level: str | None  # node, across nodes
    ranks: int
    in_place: bool | None
    size: Floats  # S
    moved: Floats  # S × factor
    time_us: Floats


def of_benchmarks(points: pa.Table) -> list[Transfers]:
    """Points of nccl-tests and the like."""
    sources, source_names = codes_of(points["source"])
    types, type_names = codes_of(points["type"])
    ranks = read_numbers(points["group_size"], NONE)
    nodes = read_numbers(points["nodes"], NONE)
    in_place = np.where(points["in_place"].is_valid(), read_booleans(points["in_place"]), -1)
    groups = Groups.by_keys([sources, types, ranks, nodes, in_place])
    size = read_numbers(points["size_bytes"], 0).astype(np.float64)
    time = read_numbers(points["time_us"], 0.0)
    curves = []
    for k, (source, kind, n, hosts, where) in enumerate(groups.keys.tolist()):  # a few curves
        of_curve = groups.group_ids == k
        times = find_bus_factor(type_names[kind].as_py(), n) if kind >= 0 and n > 0 else None
        times = times or _recorded_factor(points.filter(pa.array(of_curve)))
        if not times:
            continue
        level = None if hosts < 1 else "node" if hosts == 1 else "across nodes"
        curves.append(
            Transfers(
                source_names[source].as_py(),
                type_names[kind].as_py(),
                level,
                n,
                None if where < 0 else bool(where),
                size[of_curve],
                size[of_curve] * times,
                time[of_curve],
            )
        )
    return curves


def _recorded_factor(points: pa.Table) -> float | None:
    """Return bus over algorithm bandwidth as recorded, where the type does not tell it."""
    bus = read_numbers(points["busbw_gbps"], np.nan)
    algorithm = read_numbers(points["algbw_gbps"], np.nan)
    rows = np.flatnonzero((bus > 0) & (algorithm > 0))
    if not len(rows):
        return None
    sharpest = rows[bus[rows].argmax()]  # printed with as many decimals as the others
    return float(bus[sharpest] / algorithm[sharpest])


def of_trace(calls: CollectiveCalls) -> list[Transfers]:
    """Points of the trace's own collectives, one for each match; else for each size."""
    return _of_matches(CompleteCollectives.from_calls(calls)) + _of_calls_alone(calls)


def _of_matches(collectives: CompleteCollectives) -> list[Transfers]:
    curves = []
    kinds = Groups.by_keys(collectives.like[:, :3])
    size, _ = collectives.calls.moved
    for k, (kind, ranks, nodes) in enumerate(kinds.keys.tolist()):  # a few kinds
        of_kind = np.flatnonzero(kinds.group_ids == k)
        level = None if nodes < 1 else "node" if nodes == 1 else "across nodes"
        curves.append(
            Transfers(
                "matched",
                collectives.calls.rows.types[kind],
                level,
                ranks,
                None,
                size[collectives.row[of_kind]],
                collectives.moved[of_kind],
                collectives.time_ns[of_kind] / 1e3,
            )
        )
    return curves


def _of_calls_alone(calls: CollectiveCalls) -> list[Transfers]:
    """Points of calls whose waiting is not known: the fastest of each size waited least."""
    size, times = calls.moved
    level, level_names = codes_of(find_group_scopes(calls))
    useful = np.nan_to_num(size * times) > 0
    alone = useful & (~calls.waits.has_wait | calls.lacking) & (calls.duration > 0)
    rows = np.flatnonzero(alone)
    kinds = Groups.by_keys([calls.rows.type[rows], level[rows], calls.size[rows]])
    curves = []
    for k, (kind, where, n) in enumerate(kinds.keys.tolist()):  # a few kinds
        of_kind = rows[kinds.group_ids == k]
        same = Groups.by_keys(size[of_kind].astype(np.int64))
        sizes = same.keys.ravel().astype(np.float64)
        curves.append(
            Transfers(
                "fastest tenth",
                calls.rows.types[kind],
                None if where < 0 else level_names[where].as_py(),
                n,
                None,
                sizes,
                sizes * float(times[of_kind[0]]),
                same.quantiles(calls.duration[of_kind], [FAST])[0] / 1e3,
            )
        )
    return curves
