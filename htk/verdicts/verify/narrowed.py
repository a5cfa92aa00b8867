"""The second reading under a selection: what of a file's spans a step, or a time, leaves."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from htk.base.columns.types import NONE
from htk.base.core.humanize import format_duration
from htk.traces.trace.trace import Trace
from htk.verdicts.verify.reading import EventsByKind, Span
from htk.verdicts.verify.spans import Intervals, intersect_intervals, merge_intervals
from htk.verdicts.verify.totals import Facts, File, Window

_ON_HOST = ("cpu_ops", "launches", "python_calls")


@dataclass(frozen=True)
class Choice:
    """A selection: of steps, or else of a time in absolute ns."""

    label: str
    options: Mapping[str, Any]  # of `Trace.sel`
    steps: frozenset[int] | None
    time: tuple[int, int]

    def holds(self, file: File, row: int) -> bool:
        """Return whether a GPU activity was launched in it; by its start, if that is unknown."""
        if self.steps is not None:
            return file.step_at(file.moments[row]) in self.steps
        low, high = self.time
        call = file.call_of[row]
        launched = file.gpu[row] if call == NONE else file.calls[call]
        return low <= launched.start < high

    def host(self, file: File) -> Intervals:
        """Return when the host is looked at."""
        if self.steps is None:
            return [self.time]
        own = [step for step in file.steps if step.step in self.steps]
        return merge_intervals((step.start, step.end) for step in own if step.length)

    def windows(self, windows: Iterable[Window]) -> Iterator[Window]:
        """Return what is left of GPU windows, of steps or of times."""
        for device, step, start, end in windows:
            if self.steps is not None and step not in self.steps:
                continue
            for low, high in intersect_intervals([(start, end)], [self.time]):
                yield device, step, low, high


def list_choices(trace: Trace) -> list[Choice]:
    """Return selections to hold answers to: a step in the middle, and the middle half of the time.

    A file without a base time was moved beside the others; its own times cannot be chosen by.
    """
    ever = (-(1 << 62), 1 << 62)
    steps = sorted(set(trace.tables["annotations"]["step"].drop_null().to_pylist()))
    chosen = []
    if steps:
        step = steps[len(steps) // 2]
        options = {"steps": [step]}
        chosen.append(Choice(f"--steps {step}", options, frozenset(options["steps"]), ever))
    windows = trace.tables["rank_windows"]
    if not windows.num_rows:
        windows = trace.tables["ranks"]
    if not windows["start_ns"].null_count and not any(file.shift_ns for file in trace.files):
        first = min(windows["start_ns"].to_pylist())
        last = max(windows["end_ns"].to_pylist())
        low = first + (last - first) // 4
        high = last - (last - first) // 4
        times = {"from_ns": low - trace.origin_ns, "to_ns": high - trace.origin_ns}
        if times["from_ns"] < times["to_ns"]:
            label = " ".join(f"--{n[:-3]} {format_duration(t)}" for n, t in times.items())
            chosen.append(Choice(label, times, None, (low, high)))
    return chosen


def facts_of(file: File, choice: Choice) -> Facts:
    """Return everything that is compared of what a choice leaves of a file.

    Times of the GPU are those of its windows, whoever launched what runs in them; all else is of
    what was launched, and of what the host did, in the choice.
    """
    cut = File(_select_left(file, choice), file.rank, file.kinds, file.cycle)
    recording = choice.windows(_by_step(file) if choice.steps else file.windows())
    windows = [(device, None, start, end) for device, _, start, end in recording]
    steps = list(choice.windows(file.step_windows()))
    return {
        **cut.facts(),
        "time": dict(file.times(windows)),
        "steps": dict(file.times(steps)),
        "step_times": cut.step_times(steps),
    }


def _by_step(file: File) -> Iterator[Window]:
    return (window for window in file.step_windows() if window[1] is not None)


def _select_left(file: File, choice: Choice) -> EventsByKind:
    """Return the events that a choice leaves, those of the host cut at its edges."""
    host = choice.host(file)
    spans = file.recording.spans
    left = {name: list(_cut_spans(spans[name], host)) for name in _ON_HOST}
    left["annotations"] = _cut_ranges(spans["annotations"], host)
    left["kernels"] = [span for k, span in enumerate(file.gpu) if choice.holds(file, k)]
    others: dict[str, list[Span]] = {name: [] for name in spans}
    return EventsByKind(spans={**others, **left}, arrows=file.recording.arrows)


def _cut_spans(spans: Iterable[Span], host: Intervals) -> Iterator[Span]:
    """Yield the pieces of spans; one without length lies where it begins."""
    for span in spans:
        for low, high in host:
            if span.start < high and max(span.end, span.start + 1) > low:
                start = max(span.start, low)
                yield span._replace(start=start, end=max(min(span.end, high), start))


def _cut_ranges(ranges: Sequence[Span], host: Intervals) -> list[Span]:
    """Return the ranges of the host, cut, and the GPU's copies of those: one that no range of the
    host has the name of is chosen by its own time."""
    own = list(_cut_spans((span for span in ranges if not span.on_gpu), host))
    ids = {span.number("External id", "external id") for span in own} - {None}
    steps = {span.step for span in own} - {None}
    names = {span.name for span in ranges if not span.on_gpu}
    copies = [
        span
        for span in ranges
        if span.on_gpu
        and (
            span.number("External id", "external id") in ids
            or span.step in steps
            or (span.name not in names and any(_cut_spans([span], host)))
        )
    ]
    return own + copies
