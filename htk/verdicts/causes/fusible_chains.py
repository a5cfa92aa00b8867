"""Which chains of memory-bound kernels could be one kernel, and what a step would gain."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_lengths
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.humanize import join_in_order
from htk.base.mappings import Fields
from htk.base.names.fused import fused_implementation
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.fusible import Chains, Key, find_chains
from htk.traces.trace.trace import Trace
from htk.verdicts.causes.changes import CauseEdit
from htk.verdicts.causes.replayed import ReplayedRecording, replay_if_trusted
from htk.whatif.host_cost import unlaunched
from htk.whatif.step_model import StepModel

_REPLAYED = 8  # rows, each by itself: an edited graph takes memory and time
_Z90 = 1.645

RETURNS = table(
    chain=(TEXT, "Operators in order; each reads what one before it wrote, as far as sizes tell."),
    implementation=(TEXT, "What does them at once."),
    shapes=(TEXT, "Shapes of the first one's inputs."),
    count=(INT64, "Chains that are alike."),
    kernels=(INT64, "GPU activities in them."),
    device_ns=(INT64, "Sum of their durations."),
    device_time_pct=(FLOAT64, "Share of all GPU time."),
    moved_bytes=(INT64, "Bytes that the calls of one chain move; null: no shapes recorded."),
    saved_bytes=(INT64, "Bytes of these that one kernel would not move, at most."),
    read_again_bytes=(INT64, "Bytes of saved_bytes that are certain: read again at once."),
    chain_ns=(FLOAT64, "GPU time of one chain (mean)."),
    fused_ns=(
        FLOAT64,
        "Time of one kernel that moves the rest, at the median rate of calls of that size here.",
    ),
    step_gain_ns=(INT64, "What a step gains, by replay; null: not replayed, or no shapes."),
    step_gain_ns_lo90=(INT64, "Lower end of the 90 % interval of that."),
    step_gain_ns_hi90=(INT64, "Upper end of the 90 % interval of that."),
    rank=(INT32, "Rank of the longest one."),
    start_ns=(INT64, "Where that begins, on the rank's own clock."),
    end_ns=(INT64, "Where it ends."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("chain", "device_ns", horizontal=True),
    needs=("cpu_ops", "kernels"),
)
def fusible_chains(
    cpu_ops: pa.Table,
    op_links: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    launch_links: pa.Table,
    annotations: pa.Table,
    op_passes: pa.Table,
    kernel_passes: pa.Table,
    *,
    n: Annotated[int, "Rows to show, most time that could be saved first; 0: all."] = 20,
    recording: Trace | None = None,
) -> pa.Table:
    """Which chains of memory-bound kernels could be one kernel, and what would a step gain?

    A chain follows itself on one stream within a pass of a step; kernels that a compiler made are
    in none. Recordings do not name tensors: sizes tell what feeds what. The gain is that of a
    replay with one kernel in place of each chain; the interval holds what calls of that size
    took, and that what was written may be needed later. Without shapes there are no figures.
    """
    arguments = locals()
    chains = find_chains({name: arguments[name] for name in fusible_chains.reads})
    length = read_lengths(kernels)
    of_key = Groups.by_keys(chains.alike[chains.chain]) if len(chains.keys) else None
    if of_key is None:
        return with_coverage(RETURNS.empty_table(), chains=0)
    device = of_key.sum(length[chains.activity])
    count = np.bincount(chains.alike[chains.alike != NONE])
    fused = [_fused(chains, k, device[k] / count[k]) for k in range(len(chains.keys))]
    worth = [f.chain_ns - f.usual_ns if f else 0.0 for f in fused]
    order = np.lexsort((-device, -np.array(worth) * count))
    shown = (order[:n] if n else order).tolist()
    wanted = [k for k in shown if fused[k] is not None and worth[k] > 0]
    replayed, why = replay_if_trusted(recording) if wanted else (None, "nothing to gain is known")
    longest = _longest(chains, length)
    rows = []
    for k in shown:
        row: Fields = {
            "chain": join_in_order([name for name, _, _ in chains.keys[k]]),
            "implementation": fused_implementation(
                [name for name, _, _ in chains.keys[k]], *chains.around[k]
            ),
            "shapes": chains.keys[k][0][1],
            "count": int(count[k]),
            "kernels": int(of_key.count[k]),
            "device_ns": int(device[k]),
            "device_time_pct": 100 * int(device[k]) / max(int(length.sum()), 1),
            "chain_ns": device[k] / count[k],
            **_instance(kernels, longest[k]),
        }
        if (saving := chains.savings[k]) is not None:
            row["moved_bytes"] = saving.moved
            row["saved_bytes"] = saving.read + saving.written
            row["read_again_bytes"] = saving.read
        if (each := fused[k]) is not None:
            row["fused_ns"] = each.usual_ns
            if replayed is not None and k in wanted[:_REPLAYED]:
                row |= _gain(replayed, {chains.keys[k]: each})
        rows.append(row)
    facts: Fields = {
        "chains": int(count.sum()),
        "device_time_in_chains_pct": round(100 * int(device.sum()) / max(int(length.sum()), 1), 2),
        "rows_left_out": len(order) - len(shown),
        "replay": why,
    }
    if not any(chains.savings):
        facts["cannot_be_told"] = "bytes and gains: no shapes of operators were recorded"
    elif replayed is not None:
        every = {chains.keys[k]: f for k, f in enumerate(fused) if f is not None and worth[k] > 0}
        facts["all_chains_together"] = _gain(replayed, every)
    return with_coverage(pa.Table.from_pylist(rows, schema=RETURNS), **facts)


class _Fused(NamedTuple):
    """Times of one kernel in place of a chain, in ns."""

    chain_ns: float
    fast_ns: float
    usual_ns: float
    slow_ns: float  # where all that is written has to be


def _fused(chains: Chains, key: int, chain_ns: float) -> _Fused | None:
    """Return how long one kernel would take, never longer than the chain; None: not known."""
    saving = chains.savings[key]
    if saving is None:
        return None
    rest = saving.moved - saving.read - saving.written
    least, most = (chains.rates.lengths_of(size) for size in (rest, rest + saving.written))
    own = chain_ns / max(saving.moved, 1)
    fast, usual, _ = least or (own * rest,) * 3
    slow = most[2] if most else own * (rest + saving.written)
    return _Fused(chain_ns, *(min(ns, chain_ns) for ns in (fast, usual, slow)))


def _gain(replayed: ReplayedRecording, fused: Mapping[Key, _Fused]) -> Fields:
    gain = replayed.gain((_without_chains(fused),))
    if gain is None:
        return {}
    return {
        "step_gain_ns": gain.ns,
        "step_gain_ns_lo90": gain.low,
        "step_gain_ns_hi90": gain.high,
    }


def _without_chains(fused: Mapping[Key, _Fused]) -> CauseEdit:
    """Return the edit with one kernel in place of each of these chains."""
    won = sum(each.chain_ns - each.usual_ns for each in fused.values())
    unsure = sum(each.slow_ns - each.fast_ns for each in fused.values()) / (2 * _Z90)

    def edited(model: StepModel) -> StepModel:
        tables = model.facts.tables
        chains = model.once("fusible chains", lambda: find_chains(tables))
        places = _Places.of(chains, tables["kernels"].num_rows)
        length = [fused[key].usual_ns if key in fused else np.nan for key in chains.keys]
        wanted = take_or(np.array(length), take_or(places.key, model.facts.rows), np.nan)
        is_chosen = ~np.isnan(wanted)
        is_first = is_chosen & take_or(places.is_first, model.facts.rows, False)
        changed = unlaunched(model.with_lengths(is_first, wanted), is_chosen & ~is_first)
        return changed.with_uncertainty("compute", unsure / max(won, 1.0))

    return CauseEdit("replace", edited)


@dataclass(frozen=True)
class _Places:
    """Of each activity the key of its chain, and whether it is the first of it."""

    key: Ints
    is_first: Mask

    @classmethod
    def of(cls, chains: Chains, many: int) -> "_Places":
        key = fill_none(many)
        key[chains.activity] = chains.alike[chains.chain]
        is_first = np.zeros(many, bool)
        is_first[chains.activity] = chains.is_first
        return cls(key, is_first)


def _longest(chains: Chains, length: Ints) -> list[tuple[int, int]]:
    """Return the first and the last activity of the longest chain of each key."""
    each = Groups.by_keys(chains.chain)
    total = each.sum(length[chains.activity])
    key = chains.alike[each.keys[:, 0]]
    order = np.lexsort((-total, key))
    first = order[np.append(True, np.diff(key[order]) > 0)]
    ends = np.cumsum(each.count)
    return [
        (int(chains.activity[ends[k] - each.count[k]]), int(chains.activity[ends[k] - 1]))
        for k in first.tolist()
    ]


def _instance(kernels: pa.Table, ends: tuple[int, int]) -> Fields:
    first, last = ends
    return {
        "rank": kernels["rank"][first].as_py(),
        "start_ns": kernels["start_ns"][first].as_py(),
        "end_ns": kernels["end_ns"][last].as_py(),
    }
