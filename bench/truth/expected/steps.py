"""Which steps are whole, and why some take longer than the median one."""

from fractions import Fraction
from statistics import median
from typing import Any

from bench.truth.expected.gpu import Window, step_windows
from bench.truth.expected.sums import Row, Rows, clip, group, length_of, percent, quantile, union
from bench.truth.model import Recording

_HEAD = 0.15


def of_steps(recording: Recording) -> list[Window]:
    return [window for window in step_windows(recording) if window[1] is not None]


def _on_host(recording: Recording) -> list[tuple[int, int, int]]:
    steps = sorted(recording.steps, key=lambda span: span.start)
    return [(int(span.name.partition("#")[2]), span.start, span.end) for span in steps]


def whole_steps(recording: Recording) -> dict[tuple[int | None, int | None], bool]:
    """Return by device (None: the host) and step whether it is whole: not the last one of
    the host if it has less than half the length of the others, and not a first one without the wait
    that others begin with (if there is one other alone: that the host waited too)."""
    host = _on_host(recording)
    on_host = [end - start for _, start, end in host]
    cut = host[-1][0] if len(host) > 1 and 2 * on_host[-1] < median(on_host[:-1]) else None
    complete: dict[tuple[int | None, int | None], bool] = {(None, k): k != cut for k, *_ in host}
    for device, windows in group(of_steps(recording), lambda window: window[0]).items():
        waits = [_wait(recording, window) for window in windows]
        lengths = [end - begin for _, _, begin, end in windows]
        least = min(waits[1:], default=0) - _HEAD * median(lengths[1:] or [0])
        waited_too = len(windows) > 2 or _after_host(recording, windows[0]) > least
        lacks = len(windows) > 1 and waits[0] < least and waited_too
        for k, (_, step, _, _) in enumerate(windows):
            complete[device, step] = step != cut and not (lacks and k == 0)
    return complete


def _wait(recording: Recording, window: Window) -> int:
    device, step, begin, _ = window
    own = [a.start for a in recording.activities if a.device == device and a.step == step]
    return max(min(own) - begin, 0)


def _after_host(recording: Recording, window: Window) -> int:
    """Return how long after the host began a step its first activity did."""
    device, step, *_ = window
    (begin,) = [start for number, start, _ in _on_host(recording) if number == step]
    own = [a.start for a in recording.activities if a.device == device and a.step == step]
    return min(own) - begin


def among_ranks(recording: Recording) -> dict[tuple[int | None, int | None], Row]:
    """Return how much longer a step is than the shortest, and than the median, of its GPUs."""
    complete = whole_steps(recording)
    windows: list[Any] = of_steps(recording)
    if not windows:
        windows = [(None, *step) for step in _on_host(recording)]
    windows = [window for window in windows if complete[window[:2]]]
    rows: dict[tuple[int | None, int | None], Row] = {}
    for alike in group(windows, lambda window: window[1]).values():
        lengths = [end - begin for *_, begin, end in alike]
        usual = round(quantile(lengths, 0.5))
        for (device, step, *_), length in zip(alike, lengths, strict=True):
            rows[device, step] = {
                "skew_ns": length - min(lengths),
                "over_usual_ns": length - usual,
            }
    return rows


def step_variance(recording: Recording) -> Rows:
    """Against the whole step of median length, the lower of two, and of those alike the first."""
    windows = sorted(of_steps(recording), key=lambda window: window[0])
    complete = whole_steps(recording)
    compared = [window for window in windows if complete[window[:2]]] or windows
    if not windows:
        return {}
    in_order = sorted(compared, key=lambda window: window[3] - window[2])
    usual = in_order[(len(in_order) - 1) // 2]
    base = _times(recording, usual)
    rows: Rows = {}
    for window in windows:
        times = _times(recording, window)
        speed = round(_speed(_lengths(recording, window), _lengths(recording, usual)))
        more = {name: times[name] - base[name] for name in times}
        rows[0, window[0], window[1]] = {
            **{"duration_ns": window[3] - window[2], "excess_ns": more["window"]},
            **{"kernel_speed_ns": speed, "work_ns": more["work"] - speed},
            **{"wait_ns": 0, "host_ns": more["idle"]},
            "overlap_ns": more["window"] - more["work"] - more["idle"],
            "excess_pct": percent(more["window"], base["window"]),
        }
    return rows


def _times(recording: Recording, window: Window) -> dict[str, int]:
    device, _, begin, end = window
    spans = [(a.start, a.end) for a in recording.activities if a.device == device]
    busy = length_of(clip(union(spans), begin, end))
    length = end - begin
    return {"window": length, "idle": length - busy, "work": length_of(clip(spans, begin, end))}


def _lengths(recording: Recording, window: Window) -> dict[str, list[int]]:
    """Return how long activities of each name run in a window."""
    device, _, begin, end = window
    named: dict[str, list[int]] = {}
    for activity in recording.activities:
        low, high = max(activity.start, begin), min(activity.end, end)
        if activity.device == device and (low < high or low == activity.start == high < end):
            named.setdefault(activity.name, []).append(high - low)
    return named


def _speed(own: dict[str, list[int]], usual: dict[str, list[int]]) -> Fraction:
    """Return by how much the activities that occur in both are slower: by their means, exactly,
    as halves of a nanosecond are rounded."""
    slower = Fraction(0)
    for name in own.keys() & usual.keys():
        means = [Fraction(sum(lengths), len(lengths)) for lengths in (own[name], usual[name])]
        slower += min(len(own[name]), len(usual[name])) * (means[0] - means[1])
    return slower
