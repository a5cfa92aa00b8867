"""Which chains of memory-bound kernels could be one kernel, and what a step would gain."""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.types import Ints
from htk.base.core.analysis import TablesLater, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.mappings import Fields
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.fusible import ChainTables, Key, find_chains
from htk.quantities.measures.kernels_by import NamingTables, tell_apart
from htk.traces.trace.trace import Trace
from htk.verdicts.causes.fused_chains import ChainKinds, FusedTime, without_chains
from htk.verdicts.causes.program import FUSED_ELSEWHERE, TABLES, RecordedProgram
from htk.verdicts.causes.replayed import ReplayedRecording, replay_if_trusted

_REPLAYED = 8  # rows, each by itself: an edited graph takes memory and time
_LAUNCHING: tuple[Literal["module", "source"], ...] = ("module", "source")

RETURNS = table(
    chain=(TEXT, "Operators in order; each reads what one before it wrote, as far as sizes tell."),
    implementation=(TEXT, "What does them at once."),
    module=(TEXT, "nn.Module that launched most of the longest one."),
    source=(TEXT, "Innermost line of the program that did."),
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
    tables: ChainTables,
    naming: NamingTables,
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
    kernels = tables["kernels"]
    kinds = ChainKinds.from_chains(find_chains(tables), kernels)
    if not len(kinds):
        return with_coverage(RETURNS.empty_table(), chains=0)
    order = np.lexsort((-kinds.device_ns, -kinds.saved_ns))
    shown = (order[:n] if n else order).tolist()
    gains = {k: fused for k, fused in enumerate(kinds.fused) if fused and fused.saved_ns > 0}
    wanted = [k for k in shown if k in gains]
    replayed, why = replay_if_trusted(recording) if wanted else (None, "nothing to gain is known")
    total = max(int(kinds.length.sum()), 1)
    is_torch = recording is None or _is_of_torch(recording)
    rows = []
    for k in shown:
        row: Fields = {
            "chain": kinds.name(k),
            "implementation": kinds.implementation(k) if is_torch else FUSED_ELSEWHERE,
            "shapes": kinds.chains.keys[k][0][1],
            "count": int(kinds.count[k]),
            "kernels": int(kinds.kernels[k]),
            "device_ns": int(kinds.device_ns[k]),
            "device_time_pct": 100 * int(kinds.device_ns[k]) / total,
            "chain_ns": kinds.device_ns[k] / kinds.count[k],
            **_describe_instance(kernels, kinds.longest[k]),
        }
        if (saving := kinds.chains.savings[k]) is not None:
            row["moved_bytes"] = saving.moved
            row["saved_bytes"] = saving.read + saving.written
            row["read_again_bytes"] = saving.read
        if (each := kinds.fused[k]) is not None:
            row["fused_ns"] = each.usual_ns
        if replayed is not None and k in wanted[:_REPLAYED]:
            row |= _measure_gain(replayed, {kinds.chains.keys[k]: gains[k]})
        rows.append(row)
    _name_launching(rows, [kinds.longest[k] for k in shown], kinds.length, naming)
    in_chains = 100 * int(kinds.device_ns.sum()) / total
    facts: Fields = {
        "chains": int(kinds.count.sum()),
        "device_time_in_chains_pct": round(in_chains, 2),
        "rows_left_out": len(order) - len(shown),
        "replay": why,
    }
    if not any(kinds.chains.savings):
        facts["cannot_be_told"] = "bytes and gains: no shapes of operators were recorded"
    elif replayed is not None:
        every = {kinds.chains.keys[k]: fused for k, fused in gains.items()}
        facts["all_chains_together"] = _measure_gain(replayed, every)
    return with_coverage(pa.Table.from_pylist(rows, schema=RETURNS), **facts)


def _is_of_torch(recording: Trace) -> bool:
    return RecordedProgram.from_totals(*(recording.tables[name] for name in TABLES)).is_torch


def _name_launching(
    rows: list[Fields], chains: list[Ints], length: Ints, naming: TablesLater
) -> None:
    """Add the module and the line of the program that launched most of a chain, where the recording
    holds them."""
    for column in _LAUNCHING:
        try:
            launching, is_known = tell_apart(column, naming)
        except MissingTable:
            continue
        for row, chain in zip(rows, chains, strict=True):
            inside = chain[is_known[chain]]
            if len(inside):
                most = np.bincount(launching.codes[inside], length[inside]).argmax()
                row[column] = launching.texts[most]


def _measure_gain(replayed: ReplayedRecording, fused: Mapping[Key, FusedTime]) -> Fields:
    gain = replayed.gain((without_chains(fused),))
    return {} if gain is None else gain.columns


def _describe_instance(kernels: pa.Table, chain: Ints) -> Fields:
    first = int(chain[0])
    last = int(chain[-1])
    return {
        "rank": kernels["rank"][first].as_py(),
        "start_ns": kernels["start_ns"][first].as_py(),
        "end_ns": kernels["end_ns"][last].as_py(),
    }
