"""Where the time of each GPU goes, as parts that add up to its recorded window."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Ints
from htk.base.core.humanize import format_duration
from htk.base.errors import HtkError
from htk.dashboard.page import Visit
from htk.dashboard.plots import Layer
from htk.quantities.derived.recorded import unrecorded_ranks
from htk.verdicts.overview.summary import IDLE_WORDS

MOST_ABSENT = 32  # unrecorded ranks that have a bar each
CAUSES = 5  # of idle time shown by name, the others together


@dataclass(frozen=True)
class Shares:
    ranks: list[int]
    labels: list[str]
    layers: list[Layer]


def compute_time_shares(visit: Visit) -> Shares:
    """Compute, exposed wait, exposed transfer, copies, then idle by cause: as the step's bar."""
    times = visit.ask("time_breakdown").table
    ranks = read_numbers(times["rank"], -1).tolist()
    devices = read_numbers(times["device"], -1).tolist()
    lanes = list(zip(ranks, devices, strict=True))
    several = len(set(ranks)) < len(lanes)
    labels = [f"rank {r}" + (f" GPU {d}" if several else "") for r, d in lanes]
    total = np.maximum(read_numbers(times["total_ns"]), 1)
    exposed = read_numbers(times["exposed_comm_ns"])
    wait, unknown = _split_exposed(visit, ranks) * (not several)
    wait = np.minimum(wait, exposed)
    unknown = np.minimum(unknown, exposed - wait)
    layers = [_build_layer("compute", "compute", read_numbers(times["compute_ns"]), total)]
    if wait.any() or unknown.any():
        layers.append(_build_layer("exposed wait for other ranks", "comm", wait, total))
        layers.append(_build_layer("exposed transfer", "comm", exposed - wait - unknown, total))
        name = "exposed communication, undetermined"
        layers.append(_build_layer(name, "undetermined", unknown, total))
    else:
        layers.append(_build_layer("exposed communication", "comm", exposed, total))
    copies = read_numbers(times["exposed_memory_ns"])
    layers.append(_build_layer("exposed copies", "memory", copies, total))
    layers.append(
        _build_layer("whole CUDA graphs", "undetermined", read_numbers(times["other_ns"]), total)
    )
    layers += [_build_layer(name, "idle", ns, total) for name, ns in _split_idle(visit, lanes)]
    layers = [f for f in layers if any(f.values)]
    return _with_unrecorded(visit, Shares(ranks, labels, layers))


def _with_unrecorded(visit: Visit, recorded: Shares) -> Shares:
    """Return a hatched bar for each rank of the job that has no file, as far as there are few."""
    trace = visit.runs.trace(visit.view.run)
    if trace is None or visit.view.selection.ranks is not None:
        return recorded
    lost = unrecorded_ranks(trace.everything.tables["ranks"])
    absent = sorted(set(range(lost + len(trace.ranks))) - set(trace.ranks))
    if not lost or len(absent) != lost or lost > MOST_ABSENT:
        return recorded
    count = len(recorded.ranks)
    layers = [
        replace(f, values=[*f.values, *[0.0] * lost], texts=[*f.texts, *[""] * lost])
        for f in recorded.layers
    ]
    values = [0.0] * count + [100.0] * lost
    texts = [""] * count + ["no file of this rank"] * lost
    layers.append(Layer("unrecorded", "unrecorded", values, texts))
    labels = [*recorded.labels, *(f"rank {rank}" for rank in absent)]
    return Shares([*recorded.ranks, *absent], labels, layers)


def _build_layer(name: str, meaning: str, ns: Ints, total: Ints) -> Layer:
    return Layer(name, meaning, (100 * ns / total).tolist(), [format_duration(int(v)) for v in ns])


def _split_exposed(visit: Visit, ranks: list[int]) -> Ints:
    """Exposed waiting of each rank, and what may be waiting or transfer; nothing of the latter
    where no rank tells anything."""
    try:
        table = visit.ask("comm_wait").table
    except HtkError:
        return np.zeros((2, len(ranks)), np.int64)
    columns = (read_numbers(table[f"exposed_{c}_ns"]).tolist() for c in ("wait", "undetermined"))
    times_of = dict(
        zip(read_numbers(table["rank"]).tolist(), zip(*columns, strict=True), strict=True)
    )
    return np.array([times_of.get(rank, (0, 0)) for rank in ranks], np.int64).reshape(-1, 2).T


def _split_idle(visit: Visit, lanes: list[tuple[int, int]]) -> list[tuple[str, Ints]]:
    table: pa.Table = visit.ask("idle_breakdown").table
    position_of = {lane: k for k, lane in enumerate(lanes)}
    causes: dict[str, Ints] = {}
    for row in table.select(["rank", "device", "cause", "idle_ns"]).to_pylist():  # a few causes
        ns = causes.setdefault(row["cause"], np.zeros(len(lanes), np.int64))
        if (row["rank"], row["device"]) in position_of:
            ns[position_of[row["rank"], row["device"]]] += row["idle_ns"]
    ordered = sorted(causes.items(), key=lambda item: -int(item[1].sum()))
    named = [(IDLE_WORDS.get(cause, cause), ns) for cause, ns in ordered[:CAUSES]]
    rest = [ns for _, ns in ordered[CAUSES:]]
    return [*named, ("idle: other causes", sum(rest[1:], rest[0]))] if rest else named
