"""Windows of time on a GPU, and what fills them.

A rank's recorded window runs from its first GPU activity to the end of its last. GPU step k ends
with the last end of any activity launched in ProfilerStep k; steps tile the window. What was
launched after the last step is a window of its own without a number.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    codes_of,
    drop_fields,
    number_or_null,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, number_values, rows_by_number
from htk.base.columns.intervals import Clipped, ConcatenatedTimeline, Spans, clip_spans, merge_spans
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, fill_none
from htk.base.schema import INT32, INT64
from htk.base.schema.links import ACTIVITIES, WINDOWS
from htk.quantities.derived.cut_calls import RECORDING, STEPS, windows_of, with_passing
from htk.quantities.derived.links import steps_of

_WITHOUT_WHO = ("rank", "cycle")
_FEWEST_STEPS = 2  # that tell what is usual
_HEAD = 0.15  # of a step: by as much less may be waited before its first activity than by others
_OWN_ACTIVITIES = drop_fields(ACTIVITIES, *_WITHOUT_WHO)
_OWN_WINDOWS = drop_fields(WINDOWS, *_WITHOUT_WHO).names


def activities(kernels: pa.Table, passing: pa.Table) -> pa.Table:
    """GPU activities as time tables want them: in a cut with those that others launched."""
    return with_passing(kernels.select(_OWN_ACTIVITIES.names), passing)


def rank_windows(kernels: pa.Table, cut_windows: pa.Table) -> pa.Table:
    """First GPU activity to last end, for each device; of a cut what it left of that."""
    if cut_windows.num_rows:
        return windows_of(cut_windows, RECORDING).select(_OWN_WINDOWS)
    device, start, end = _read_spans(kernels)
    lows, highs, devices = _find_extents(device, start, end)
    return _build_windows(
        devices, fill_none(len(devices)), lows, highs, np.ones(len(devices), bool)
    )


def step_windows(
    kernels: pa.Table, kernel_links: pa.Table, annotations: pa.Table, cut_windows: pa.Table
) -> pa.Table:
    """GPU steps of each device; of a cut those that it left."""
    if cut_windows.num_rows:
        return windows_of(cut_windows, STEPS).select(_OWN_WINDOWS)
    device, start, end = _read_spans(kernels)
    step = read_numbers(kernel_links["step"], NONE)
    lows, highs, devices = _find_extents(device, start, end)
    rows: list[tuple[int, int, int, int, bool]] = []
    for low, high, device_id in zip(lows.tolist(), highs.tolist(), devices.tolist(), strict=True):
        in_steps = (device == device_id) & (step >= 0)  # a few devices in one process
        rows += _list_steps(
            device_id,
            (low, high),
            Spans(start[in_steps], end[in_steps]),
            step[in_steps],
            annotations,
            _cut_step(annotations),
        )
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    return _build_windows(columns[0], columns[1], columns[2], columns[3], columns[4] > 0)


def _list_steps(
    device: int,
    window: tuple[int, int],
    spans: Spans,
    step: Ints,
    annotations: pa.Table,
    cut: int,
) -> list[tuple[int, int, int, int, bool]]:
    """Return the steps one behind the other; the first begins with the window.

    A step whose predecessor was not recorded begins with the first activity that it launched. Such
    a step, and the first, are not complete where all others wait much longer for their first
    activity: for data. Where there is but one other, the host must have taken that time too.
    """
    recorded, began, _ = steps_of(annotations)
    host = dict(zip(recorded.tolist(), began.tolist(), strict=True))
    rows = []
    after = []  # how long after the host began a step its first activity did
    anew = []  # whether it is not known when the step began
    begin, high = window
    launched = Groups.by_keys(step)
    reaches = np.maximum.accumulate(launched.max(spans.end))
    firsts = launched.min(spans.start)
    before = None
    for k, first, reach in zip(
        launched.keys.ravel().tolist(), firsts.tolist(), reaches.tolist(), strict=True
    ):
        missing = (
            len(recorded) > 0
            and before is not None
            and not np.isin(np.arange(before + 1, k), recorded).all()
        )
        if missing and first > begin:
            rows.append((device, -1, begin, first, False))
            begin = first
        anew.append(before is None or missing)
        after.append(first - host.get(k, first))
        rows.append((device, k, begin, reach, k != cut))
        begin, before = reach, k
    rows = _without_heads(rows, firsts, np.array(after, np.int64), np.array(anew, bool))
    if rows and begin < high:
        rows.append((device, -1, begin, high, False))
    return rows


def _without_heads(
    rows: list[tuple[int, int, int, int, bool]],
    first: Ints,
    after: Ints,
    anew: NDArray[np.bool_],
) -> list[tuple[int, int, int, int, bool]]:
    """Return the windows, of which steps that begin otherwise than the others are not complete.

    `after`: how long after the host began each step its first activity did.
    """
    steps = np.array([row for row in rows if row[1] >= 0], np.int64).reshape(-1, 5)
    head = np.maximum(first - steps[:, 2], 0)
    if anew.all():
        return rows
    others = head[~anew]
    least = others.min() - _HEAD * np.median((steps[:, 3] - steps[:, 2])[~anew])
    lacks = anew & (head < least) & ((len(others) >= _FEWEST_STEPS) | (after > least))
    unlike = steps[lacks, 1].tolist()
    return [(*row[:4], row[4] and row[1] not in unlike) for row in rows]


def _cut_step(annotations: pa.Table) -> int:
    """The last step, where the recording's end cut it: less than half as long as the others."""
    step, start, end = steps_of(annotations)
    if len(step) < 2:
        return -1
    length = end - start
    return int(step[-1]) if 2 * length[-1] < np.median(length[:-1]) else -1


def _find_extents(device: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    devices, inverse = np.unique(device, return_inverse=True)
    lows = np.full(len(devices), np.iinfo(np.int64).max, np.int64)
    highs = np.full(len(devices), np.iinfo(np.int64).min, np.int64)
    np.minimum.at(lows, inverse, start)
    np.maximum.at(highs, inverse, end)
    return lows, highs, devices


def _read_spans(kernels: pa.Table) -> tuple[Ints, Ints, Ints]:
    return (
        read_keys(kernels["device"]),
        read_numbers(kernels["start_ns"]),
        read_numbers(kernels["end_ns"]),
    )


def _build_windows(
    device: Ints, step: Ints, start: Ints, end: Ints, complete: NDArray[np.bool_]
) -> pa.Table:
    columns = [
        number_or_null(device, INT32),
        number_or_null(step, INT32),
        build_numbers(start, INT64),
        build_numbers(end, INT64),
        build_booleans(complete),
    ]
    return pa.table(columns, names=_OWN_WINDOWS)


@dataclass(frozen=True)
class WindowedSpans:
    """GPU activities cut to windows, laid on one axis."""

    axis: ConcatenatedTimeline
    length: Ints  # of each window
    row: Ints  # activity row of each piece
    window: Ints  # window of each piece
    start: Ints  # on the axis
    end: Ints

    def union(self, pieces: NDArray[np.bool_]) -> Spans:
        """Time on the axis that the chosen pieces cover."""
        return merge_spans(self.start[pieces], self.end[pieces])


def fill_windows(activities: pa.Table, windows: pa.Table) -> WindowedSpans:
    """Cut activities to the windows of their rank, cycle and device."""
    from_, to = read_times(windows)
    cut = cut_to_windows(activities, windows)
    axis = ConcatenatedTimeline.from_bounds(from_, to)
    return WindowedSpans(
        axis,
        to - from_,
        cut.row,
        cut.window,
        axis.point(cut.window, cut.start),
        axis.point(cut.window, cut.end),
    )


def cut_to_windows(spans: pa.Table, windows: pa.Table) -> Clipped:
    """Parts of spans that lie in windows of their rank, cycle and device."""
    start, end = read_times(spans)
    from_, to = read_times(windows)
    lane, window_lane = _number_lanes(spans, windows)
    rows = []
    places = []
    starts = []
    ends = []
    spans_of = rows_by_number(lane)
    windows_of = rows_by_number(window_lane)
    for lane_id in number_values(window_lane)[0].tolist():  # one device of one rank after the other
        lane_spans = spans_of(lane_id)
        lane_windows = windows_of(lane_id)
        lane_windows = lane_windows[order_by(from_[lane_windows])]
        cut = clip_spans(start[lane_spans], end[lane_spans], from_[lane_windows], to[lane_windows])
        rows.append(lane_spans[cut.row])
        places.append(lane_windows[cut.window])
        starts.append(cut.start)
        ends.append(cut.end)
    return Clipped(_join_parts(rows), _join_parts(places), _join_parts(starts), _join_parts(ends))


@dataclass(frozen=True)
class KindMask:
    """What kind each row is of."""

    codes: NDArray[np.int32]
    names: list[str]

    def equals(self, kind: str) -> NDArray[np.bool_]:
        return np.asarray(self.codes == (self.names.index(kind) if kind in self.names else -2))


def kinds_of(activities: pa.Table, row: Ints) -> KindMask:
    """Kinds of some rows of activities."""
    codes, kinds = codes_of(activities["kind"])
    return KindMask(codes[row], kinds.to_pylist())


def _number_lanes(activities: pa.Table, windows: pa.Table) -> tuple[Ints, Ints]:
    """Return one number for each (rank, cycle, device); tables of one file tell the device."""
    who = [name for name in (*_WITHOUT_WHO, "device") if name in activities.column_names]
    keys = [np.column_stack([read_keys(t[c]) for c in who]) for t in (activities, windows)]
    numbers_of_both = Groups.by_keys(np.concatenate(keys)).group_ids
    return numbers_of_both[: len(keys[0])], numbers_of_both[len(keys[0]) :]


def _join_parts(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
