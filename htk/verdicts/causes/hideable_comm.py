"""Which transfers nothing hides, the compute that could run beside them, and what a step gains."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from htk.base.columns.groups import Groups
from htk.base.columns.intervals import Spans, intersect_spans, measure_covered, merge_spans
from htk.base.columns.types import NONE, Ints
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.mappings import Fields
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.traces.trace.trace import Trace
from htk.verdicts.causes.changes import CauseEdit
from htk.verdicts.causes.replayed import ReplayedRecording
from htk.whatif.edits.overlap import hide_transfers
from htk.whatif.hideable import HideableTransfers, Payload, find_hideable
from htk.whatif.step_model import StepModel

_NAMED = 3  # operators of the independent work
_HOW = {
    Payload.PARAMETERS: "gather one unit ahead (FSDP: forward_prefetch, backward_prefetch)",
    Payload.GRADIENTS: "on a stream of their own, in buckets (DDP: of 25 MB; FSDP: one unit)",
    Payload.ACTIVATIONS: "in pieces that take turns with compute: htk whatif --split",
    Payload.UNKNOWN: None,
}

RETURNS = table(
    carried=(TEXT, "parameters, gradients, activations, or unknown."),
    type=(TEXT, "all_reduce, all_gather, …"),
    group_size=(INT32, "Ranks that take part."),
    calls_per_step=(FLOAT64, "Calls of a rank in a step (mean)."),
    comm_ns=(INT64, "Transfer of a rank in a step (mean), from the last rank's arrival."),
    exposed_ns=(INT64, "Of that: nothing computes; of several transfers at once the first has it."),
    independent_ns=(
        INT64,
        "Compute of a rank in a step (mean) that needs none of them, nor they it, and has no "
        "transfer beside it; null: not known.",
    ),
    hideable_ns=(INT64, "Of exposed_ns: fits beside that."),
    beside=(TEXT, "Operators of that compute, most time first."),
    how=(TEXT, "What would run both at once."),
    step_gain_ns=(INT64, "What a step gains, by replay; null: not replayed."),
    step_gain_ns_lo90=(INT64, "Lower end of the 90 % interval of that."),
    step_gain_ns_hi90=(INT64, "Upper end of the 90 % interval of that."),
    rank=(INT32, "Rank of the call that is exposed for longest."),
    start_ns=(INT64, "Where that begins, on the rank's own clock."),
    end_ns=(INT64, "Where it ends."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("type", ("hideable_ns", "exposed_ns"), horizontal=True),
    needs=("collectives", "kernels"),
)
def hideable_comm(kernels: pa.Table, *, recording: Trace | None = None) -> pa.Table:
    """Which communication does nothing hide, and which independent work could?

    What a collective carries tells which compute is independent of it: the unit before the one
    whose parameters are gathered; the backward pass, for gradients that it has made. Compute that
    runs beside a transfer today hides no other one. The gain is that of a replay with as much of
    each transfer beside compute as fits, which slows that down.
    """
    if recording is None:
        raise MissingTable("this question replays a whole recording")
    replayed = ReplayedRecording.from_trace(recording)
    model = replayed.model
    transfers = find_hideable(model, replayed.start.replayed.time)
    calls = np.flatnonzero(transfers.carried != NONE)
    facts = model.facts
    codes = [transfers.carried, facts.collective.codes.astype(np.int64), facts.group_size]
    kinds = Groups.by_keys([code[calls] for code in codes])
    exposed = kinds.sum(transfers.exposed[calls])
    rows = []
    for kind in np.argsort(-exposed, kind="stable").tolist():
        of_kind = calls[kinds.group_ids == kind]
        rows.append(_build_transfer_row(kernels, replayed, transfers, of_kind))
    answer = pa.Table.from_pylist(rows, schema=RETURNS)
    coverage: Fields = {
        "replay": replayed.gate.verdict if replayed.is_refused else replayed.in_words
    }
    if transfers.hideable.any():
        coverage["all_together"] = _measure_gain(replayed, transfers.hideable)
    return with_coverage(answer, **coverage)


def _build_transfer_row(
    kernels: pa.Table, replayed: ReplayedRecording, transfers: HideableTransfers, calls: Ints
) -> Fields:
    model = replayed.model
    times = len(model.graph.ranks) * replayed.steps
    first = int(calls[0])
    carried = Payload(int(transfers.carried[first]))
    moving = transfers.moving
    size = int(model.facts.group_size[first])
    worst = int(calls[transfers.exposed[calls].argmax()])
    recorded = int(model.graph.activities.row[worst])
    row: Fields = {
        "carried": carried.name.lower(),
        "type": model.facts.collective[first],
        "group_size": size if size > 0 else None,
        "calls_per_step": len(calls) / times,
        "comm_ns": round(int((moving.end - moving.start)[calls].sum()) / times),
        "exposed_ns": round(int(transfers.exposed[calls].sum()) / times),
        "how": _HOW[carried],
        "rank": kernels["rank"][recorded].as_py(),
        "start_ns": kernels["start_ns"][recorded].as_py(),
        "end_ns": kernels["end_ns"][recorded].as_py(),
    }
    if carried in (Payload.ACTIVATIONS, Payload.UNKNOWN):
        return row
    beside = list(_list_independent(model, transfers, calls))
    hideable = np.zeros(len(transfers.hideable), np.int64)
    hideable[calls] = transfers.hideable[calls]
    row["independent_ns"] = round(sum(spans.total for _, spans in beside) / times)
    row["hideable_ns"] = round(int(hideable.sum()) / times)
    row["beside"] = _name_operators(model, replayed.start.replayed.time, beside)
    return row | (_measure_gain(replayed, hideable) if hideable.any() else {})


def _list_independent(
    model: StepModel, transfers: HideableTransfers, calls: Ints
) -> Iterable[tuple[int, Spans]]:
    """Return the free compute of each device in the windows of some transfers."""
    devices = model.graph.activities.device[calls]
    for device in np.unique(devices).tolist():  # a few
        own = calls[devices == device]
        windows = merge_spans(transfers.window.start[own], transfers.window.end[own])
        yield device, intersect_spans(windows, transfers.free[device])


def _name_operators(model: StepModel, time: Ints, beside: Iterable[tuple[int, Spans]]) -> str:
    """Return the operators that compute most in some spans of devices."""
    graph = model.graph
    lengths: Counter[str] = Counter()
    for device, spans in beside:
        own = np.flatnonzero((graph.activities.device == device) & model.is_compute)
        inside = measure_covered(spans, time[graph.end[own]]) - measure_covered(
            spans, time[graph.start[own]]
        )
        for operator, ns in zip(model.facts.op.rows(own), inside.tolist(), strict=True):
            lengths[operator or "unknown"] += ns
    return ", ".join(name for name, ns in lengths.most_common(_NAMED) if ns)


def _measure_gain(replayed: ReplayedRecording, hidden: Ints) -> Fields:
    if replayed.is_refused:
        return {}
    gain = replayed.gain((CauseEdit("overlap", lambda model: hide_transfers(model, hidden)),))
    return {} if gain is None else gain.columns
