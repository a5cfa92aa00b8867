"""What sampled counters say of a GPU over spans of time: clock, power, heat, how busy it was.

Every tool calls them as it likes: a name tells which quantity one is, and a number in the process
or in the name which GPU. A value holds from its sample to the next; before the first nothing is
known.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_nulls, build_numbers, codes_of, mark_valid, read_numbers
from htk.base.columns.groups import Groups, divide_or_nan
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.base.schema import FLOAT64
from htk.base.schema.columns import Column

# Of one quantity those of the first pattern that some counter matches are added up.
_QUANTITIES = {
    "clock_mhz": (r"\bSM clock|GPC clock|\bgfx clock|\bsclk\b|graphics clock|core clock|SM_CLOCK",),
    "power_w": (r"\bpower\b|POWER_USAGE",),
    "temperature_c": (r"^(?!.*mem).*(?:temperature|\btemp\b|GPU_TEMP)",),
    "sm_active_pct": (r"\bSMs? active\b.*%", r"^sm__cycles_active\.avg\.pct"),
    "memory_busy_pct": (
        r"\bHBM BW\b.*%",
        r"^dram__throughput\.avg\.pct",
        r"\bDRAM (?:read|write) bandwidth\b.*%",
    ),
}
COLUMNS: dict[str, Column] = {
    "clock_mhz": (FLOAT64, "Clock meanwhile, the mean by a counter; null: not sampled."),
    "power_w": (FLOAT64, "Power meanwhile, the mean by a counter."),
    "temperature_c": (FLOAT64, "Temperature meanwhile, the mean by a counter."),
    "sm_active_pct": (FLOAT64, "Share of the SMs that had work meanwhile, the mean by a counter."),
    "memory_busy_pct": (FLOAT64, "Share of the memory's bandwidth in use, the mean by a counter."),
}
_PATTERNS = {
    quantity: [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
    for quantity, patterns in _QUANTITIES.items()
}
_GPU = re.compile(r"(?:GPU|device)\s{0,3}(\d{1,4})", re.IGNORECASE)


class SpanMeans:
    """Means over the spans of some GPU activities, and over groups of them."""

    def __init__(self, counters: pa.Table, spans: pa.Table) -> None:
        self.start = read_numbers(spans["start_ns"])
        self.end = read_numbers(spans["end_ns"])
        where = np.column_stack([read_numbers(spans[name], 0) for name in ("rank", "device")])
        self._of_gpu = Groups.by_keys(where.astype(np.int64))
        self.of_quantity = {
            quantity: self._compute_means(series)
            for quantity, series in sampled_quantities(counters)
        }

    def of_groups(
        self, groups: Groups, rows: Ints | slice = slice(None), columns: Iterable[str] = COLUMNS
    ) -> Iterator[pa.Array]:
        """Yield, for each of some columns, the mean over each group's rows by their lengths."""
        length = np.maximum(self.end - self.start, 1)[rows].astype(np.float64)
        for quantity in columns:
            if quantity not in self.of_quantity:
                yield build_nulls(FLOAT64, len(groups))
                continue
            mean = self.of_quantity[quantity][rows]
            is_known = ~np.isnan(mean)
            weight = np.bincount(groups.group_ids, np.where(is_known, length, 0.0), len(groups))
            total = np.bincount(
                groups.group_ids, np.where(is_known, (mean * length), 0.0), len(groups)
            )
            yield build_numbers(divide_or_nan(total, weight), FLOAT64, weight > 0)

    def _compute_means(self, series: "list[Sampled]") -> Floats:
        means = np.full(len(self.start), np.nan)
        for gpu, (rank, device) in enumerate(self._of_gpu.keys.tolist()):  # a few GPUs
            rows = np.flatnonzero(self._of_gpu.group_ids == gpu)
            own = [s for s in series if s.rank == rank and s.device in (None, device)]
            if own:
                parts = [sampled.mean(self.start[rows], self.end[rows]) for sampled in own]
                means[rows] = np.sum(parts, axis=0)
        return means


class Sampled(NamedTuple):
    """The samples of one counter of a GPU, in order."""

    rank: int
    device: int | None  # None: not said
    time: Ints
    value: Floats

    def mean(self, start: Ints, end: Ints) -> Floats:
        """Return the mean of each span; NaN where none of it was sampled."""
        begun = np.maximum(start, self.time[0])
        covered = end - begun
        held = np.searchsorted(self.time, begun, side="right") - 1
        area = self._integrate_value(end) - self._integrate_value(begun)
        means = np.where(covered > 0, area / np.maximum(covered, 1), self.value[held])
        return np.where(covered >= 0, means, np.nan)

    def _integrate_value(self, time: Ints) -> Floats:
        """Return the integral of the value from the first sample until each time."""
        until = np.append(0.0, np.cumsum(self.value[:-1] * np.diff(self.time)))
        held = np.maximum(np.searchsorted(self.time, time, side="right") - 1, 0)
        return np.asarray(until[held] + self.value[held] * (time - self.time[held]))


def sampled_quantities(counters: pa.Table) -> Iterator[tuple[str, list[Sampled]]]:
    """Yield the series of each quantity that the counters hold."""
    kept = counters.filter(
        pa.array(mark_valid(counters["value"]) & mark_valid(counters["time_ns"]))
    )
    if not kept.num_rows:
        return
    texts = [codes_of(kept[name]) for name in ("process", "name", "series")]
    rank = read_numbers(kept["rank"], 0).astype(np.int64)
    groups = Groups.by_keys([rank, *(codes.astype(np.int64) for codes, _ in texts)])
    time = read_numbers(kept["time_ns"])
    value = read_numbers(kept["value"])
    series: dict[str, list[tuple[str, Sampled]]] = defaultdict(list)
    for counter, (of_rank, *codes) in enumerate(groups.keys.tolist()):  # some counters
        process, *words = [
            str(names[k].as_py()) if k >= 0 else ""
            for k, (_, names) in zip(codes, texts, strict=True)
        ]
        name = " ".join(words).strip()
        quantity = next((q for q, listed in _PATTERNS.items() if _is_matched(listed, name)), None)
        if quantity is not None:
            gpu = _GPU.search(process) or _GPU.search(name)
            rows = np.flatnonzero(groups.group_ids == counter)
            rows = rows[order_by(time[rows])]
            device = int(gpu[1]) if gpu else None
            sampled = Sampled(of_rank, device, time[rows], value[rows])
            series[quantity].append((name, sampled))
    for quantity, named in series.items():
        pattern = next(p for p in _PATTERNS[quantity] if any(p.search(name) for name, _ in named))
        yield quantity, [sampled for name, sampled in named if pattern.search(name)]


def _is_matched(patterns: list[re.Pattern[str]], name: str) -> bool:
    return any(pattern.search(name) for pattern in patterns)
