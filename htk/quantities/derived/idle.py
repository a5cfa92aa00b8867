"""Why a GPU was idle: each gap cut into pieces, each piece with a cause.

A gap ends with the activity that starts next. Up to the call that launched it the host was late,
and what the host did at that time is the cause. From then on it is launch latency where the start
followed the launch soon, or the turn of queued kernels on one stream, or a wait for an event of
another stream, or unknown. Between nodes of one replay of a CUDA graph there is no launch. A
blocking call during which nothing recorded runs points to GPU work that was not recorded.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    build_numbers,
    build_table,
    decode_texts,
    match_texts,
    number_or_null,
    read_booleans,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import Spans, clip_spans
from htk.base.columns.nesting import FILE, Threads, files_of
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes, mark_heads, repeat_rows, running_max
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask, fill_none
from htk.base.schema import INT32, INT64
from htk.quantities.derived.cut_calls import with_passing
from htk.quantities.derived.host_states import PYTHON, STATES, SYNC, HostStates, call_states

CAUSES = (
    *STATES,
    "launch_latency",
    "stream_event_wait",
    "unrecorded_gpu_work_suspected",
    "back_to_back",
    "between_queued_kernels",
    "inside_cuda_graph",
    "unknown",
)
LATENCY, STREAM_WAIT, UNRECORDED, BACK_TO_BACK, QUEUED, IN_GRAPH, UNKNOWN = range(
    len(STATES), len(CAUSES)
)

# A launch under a profiler takes 5 to 20 us to reach an empty GPU; no turn of kernels takes longer.
LATENCY_NS = 30_000
BLOCKED_NS = 200_000  # no call takes that long to return from a GPU that is done
COPY_NS_PER_BYTE = 1.0  # the host fills staging buffers for pageable memory at above 1 GB/s
# Gaps that are only the tick of the clock. ROCm queues back-to-back kernels exactly 1 ns apart;
# NVIDIA's clock ticks every 32 ns from Hopper on.
FLOOR_ROCM_NS = 1
FLOOR_CUDA_NS = 32
LIMITS = {  # as answers tell them
    "latency_at_most_ns": LATENCY_NS,
    "blocking_beyond_ns": BLOCKED_NS,
    "tick_ns": FLOOR_CUDA_NS,
    "tick_on_rocm_ns": FLOOR_ROCM_NS,
}


class _Gaps(NamedTuple):
    file: Ints
    device: Ints
    stream: Ints  # NONE: no stream of the device runs anything
    start: Ints
    end: Ints
    row: Ints  # of the activity that ends it

    def joined(self, other: "_Gaps") -> "_Gaps":
        return _Gaps(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


class _Pieces(NamedTuple):
    gap: Ints
    cause: Ints
    start: Ints
    end: Ints


def idle_causes(
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    cpu_ops: pa.Table,
    annotations: pa.Table,
    python_calls: pa.Table,
    overheads: pa.Table,
    syncs: pa.Table,
    passing: pa.Table,
) -> pa.Table:
    """Idle time of each device and of each of its streams, cut by cause.

    Where the tables are those of several files (`derived.together`), so is the answer.
    """
    kernels = with_passing(kernels, passing)
    kernel_links = _with_unlinked(kernel_links, kernels.num_rows)
    threads = Threads()
    gaps = _gaps_of(kernels)
    calls = call_states(launches, kernels, kernel_links)
    host = HostStates.from_tables(
        calls, launches, cpu_ops, annotations, python_calls, overheads, threads
    )
    thread = np.append(threads.number_threads(launches), np.int32(NONE)).astype(np.int64)
    launch = read_numbers(kernel_links["launch_row"], NONE)[gaps.row]
    turns = _find_turns(gaps, kernels, kernel_links)
    pieces = _cut_gaps(gaps, launch, launches, turns, thread[launch], host)
    file = gaps.file[pieces.gap]
    waits = _waits_for_events(kernels, kernel_links, launches, syncs)[gaps.row]
    # Between streams short, yet a dependency: the next activity was queued already.
    called = np.append(read_numbers(launches["end_ns"]), np.iinfo(np.int64).max)[launch]
    handed = waits & ~turns.same_stream & (called <= gaps.start)
    waiting = np.where(pieces.cause == UNKNOWN, waits[pieces.gap], handed[pieces.gap])
    waiting &= np.isin(pieces.cause, (UNKNOWN, LATENCY))
    cause = np.where(waiting, STREAM_WAIT, pieces.cause)
    no_operators = ~np.isin(file, files_of(cpu_ops))  # nothing tells them from Python
    cause = np.where(no_operators & (cause == PYTHON), UNKNOWN, cause)
    staging = read_numbers(kernels["size_bytes"])[gaps.row] * COPY_NS_PER_BYTE
    never = np.where(gaps.stream == NONE, 0, np.inf)  # other streams explain a blocking call
    pieces = _split_blocked(pieces._replace(cause=cause), host.anywhere(SYNC), staging + never)
    return _build_idle_table(pieces, gaps, kernels)


def _with_unlinked(kernel_links: pa.Table, rows: int) -> pa.Table:
    """Return the links, and no link for all further rows: of activities that others launched."""
    more = rows - kernel_links.num_rows
    if not more:
        return kernel_links
    return pa.concat_tables([kernel_links, build_table(kernel_links.schema, {}, more)])


def _gaps_of(kernels: pa.Table) -> _Gaps:
    device = read_keys(kernels["device"])
    stream = read_numbers(kernels["stream"], NONE)
    start, end = read_times(kernels)
    file = files_of(kernels)
    nobody = fill_none(len(device))
    of_devices = _gaps_in(np.stack([file, device, nobody], axis=1), start, end)
    return of_devices.joined(_gaps_in(np.stack([file, device, stream], axis=1), start, end))


def _gaps_in(lanes: Ints, start: Ints, end: Ints) -> _Gaps:
    """Time between activities of a lane in which none of them runs."""
    of = Groups.by_keys(lanes)
    if not len(of):
        return _Gaps(*(np.empty(0, np.int64) for _ in _Gaps._fields))
    order = order_by(of.group_ids, start)
    lane = of.group_ids[order]
    reach = running_max(mark_heads(lane), end[order])
    free = np.flatnonzero((lane[1:] == lane[:-1]) & (start[order][1:] > reach[:-1]))
    keys = of.keys[lane[free]]
    next_start = start[order][free + 1]
    file, device, stream = keys.T
    return _Gaps(file, device, stream, reach[free], next_start, order[free + 1])


class _Turns(NamedTuple):
    """How the activity that ends each gap follows what ran before it."""

    in_graph: Mask  # its CUDA graph had begun before the gap
    same_stream: Mask  # what ran last was of its stream
    launched: Mask


def _find_turns(gaps: _Gaps, kernels: pa.Table, kernel_links: pa.Table) -> _Turns:
    launch = read_numbers(kernel_links["launch_row"], NONE)
    start = read_numbers(kernels["start_ns"])
    replayed = np.flatnonzero(match_texts(kernel_links["launch_by"], "graph".__eq__))
    begun = np.full(len(launch), np.iinfo(np.int64).max)
    # A program of TPUs begins on each of them; a graph has one device.
    replays = Groups.by_keys([launch[replayed], read_numbers(kernels["device"], NONE)[replayed]])
    if len(replayed):
        begun[replayed] = replays.min(start[replayed])[replays.group_ids]
    is_launched = (launch != NONE) | read_booleans(kernel_links["carry_in"])
    same_stream = _ends_before(kernels)[gaps.row] == gaps.start
    return _Turns(begun[gaps.row] < gaps.end, same_stream, is_launched[gaps.row])


def _ends_before(kernels: pa.Table) -> Ints:
    """Return when the stream of each activity was done with what started before it."""
    start, end = read_times(kernels)
    columns = [files_of(kernels), *(read_numbers(kernels[c], NONE) for c in ("device", "stream"))]
    stream = Groups.by_keys(columns).group_ids
    order = order_by(stream, start)
    first = mark_heads(stream[order])
    done = np.empty(len(order), np.int64)
    done[order[1:]] = running_max(first, end[order])[:-1]
    done[order[first]] = NO_TIME
    return done


def _cut_gaps(
    gaps: _Gaps,
    launch: Ints,
    launches: pa.Table,
    turns: _Turns,
    thread: Ints,
    host: HostStates,
) -> _Pieces:
    """Return the gaps cut where the host is no longer late, and by what the host did until then.

    A call that began no longer before the start than a launch takes is on its way from its begin,
    another from its end.
    """
    linked = launch >= 0
    call, done = read_times(launches, launch[linked])
    start = gaps.start[linked]
    end = gaps.end[linked]
    sent = np.where(end - call <= LATENCY_NS, call, done)
    on_its_way = np.zeros(len(linked), bool)
    on_its_way[linked] = end - sent <= LATENCY_NS
    late = gaps.start.copy()  # until when the host is late
    late[linked] = np.clip(sent, start, end)
    of_rocm = files_of(launches)[match_texts(launches["name"], lambda n: n.startswith("hip"))]
    floor = np.where(np.isin(gaps.file, of_rocm), FLOOR_ROCM_NS, FLOOR_CUDA_NS)
    tick = gaps.end - gaps.start <= floor
    late[tick | turns.in_graph] = gaps.start[tick | turns.in_graph]
    queued = (
        turns.same_stream
        & turns.launched
        & (late == gaps.start)
        & (gaps.end - gaps.start <= LATENCY_NS)
    )
    rest = np.select(
        [tick, turns.in_graph, on_its_way, queued],
        [BACK_TO_BACK, IN_GRAPH, LATENCY, QUEUED],
        UNKNOWN,
    )
    busy = gaps.end > late
    parts = [_Pieces(np.flatnonzero(busy), rest[busy], late[busy], gaps.end[busy])]
    waiting = np.flatnonzero(late > gaps.start)
    for launchers in _one_of_each_file(np.unique(thread[waiting]), host.file_of_thread):
        of_thread = waiting[np.isin(thread[waiting], launchers)]
        line = host.timeline(launchers)
        cut = clip_spans(gaps.start[of_thread], late[of_thread], line.start, line.end)
        parts.append(_Pieces(of_thread[cut.row], line.state[cut.window], cut.start, cut.end))
    return _Pieces(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _one_of_each_file(threads: Ints, file_of_thread: Ints) -> Iterator[Ints]:
    """Yield the first thread of each file, then the second: there are few that launch."""
    threads = threads[order_by(file_of_thread[threads])]
    first = np.flatnonzero(mark_heads(file_of_thread[threads]))
    turn = repeat_rows(np.diff(np.append(first, len(threads))))[1]
    for k in range(turn.max(initial=-1) + 1):
        yield threads[turn == k]


def _split_blocked(pieces: _Pieces, blocking: Spans, staging: NDArray[np.float64]) -> _Pieces:
    """Points out where a call blocks for longer than it can while nothing recorded runs.

    Its own thread may be the one that is late, or the activity was queued and does not start.
    """
    long = pieces.end - pieces.start > np.maximum(BLOCKED_NS, staging[pieces.gap])
    cause = np.where(long & (pieces.cause == SYNC), UNRECORDED, pieces.cause)
    queued = np.flatnonzero(long & np.isin(cause, (STREAM_WAIT, UNKNOWN)))
    inside = clip_spans(pieces.start[queued], pieces.end[queued], blocking.start, blocking.end)
    most = np.zeros(len(queued), np.int64)
    np.add.at(most, inside.row, inside.end - inside.start)
    length = pieces.end[queued] - pieces.start[queued]
    cause[queued[2 * most > length]] = UNRECORDED
    return pieces._replace(cause=cause)


def _waits_for_events(
    kernels: pa.Table, kernel_links: pa.Table, launches: pa.Table, syncs: pa.Table
) -> Mask:
    """Return the activities ahead of which, on their stream, a wait for an event was queued.

    A recorded wait names its stream: CUDA's stands where it was called, MTIA's where the device
    waited. Without such records: a wait was called between the launch of the activity and the
    launch before it.
    """
    launch = read_numbers(kernel_links["launch_start_ns"], NO_TIME)
    file = files_of(kernels)
    is_recorded = np.isin(file, files_of(syncs))
    waits = np.zeros(len(file), bool)
    if not is_recorded.all():
        called = match_texts(launches["name"], lambda n: "StreamWaitEvent" in n)
        called_ns = read_numbers(launches["start_ns"])[called]
        waits = _mark_after(file, launch, files_of(launches)[called], called_ns) & (
            launch > NO_TIME
        )
    if not is_recorded.any():
        return waits
    lane, on = _number_lanes(kernels, syncs)
    called = match_texts(syncs["name"], lambda n: "Stream Wait" in n)
    waited = match_texts(syncs["name"], "event_wait".__eq__)
    start, end = read_times(syncs)
    queued = _mark_after(lane, launch, on[called], start[called]) & (launch > NO_TIME)
    queued |= _mark_after(lane, read_numbers(kernels["start_ns"]), on[waited], end[waited])
    return np.where(is_recorded, queued, waits)


def _number_lanes(kernels: pa.Table, syncs: pa.Table) -> tuple[Ints, Ints]:
    """Return a number for each stream of each file, in both tables."""
    keys = [
        np.stack([files_of(t), read_numbers(t["stream"], NONE)], axis=1) for t in (kernels, syncs)
    ]
    lanes = Groups.by_keys(np.concatenate(keys)).group_ids
    return lanes[: kernels.num_rows], lanes[kernels.num_rows :]


def _mark_after(lane: Ints, time: Ints, on: Ints, moment_ns: Ints) -> Mask:
    """Rows with one of the moments (`at`, each on a lane) since the row before of their lane."""
    order = order_by(lane, time)
    before = np.append(NO_TIME, time[order][:-1])
    before[mark_heads(lane[order])] = NO_TIME
    moments = SegmentTimes(on, moment_ns)
    until_now = moments.count_until(lane[order], time[order])[1]
    passed = np.zeros(len(time), bool)
    passed[order] = until_now > moments.count_until(lane[order], before)[1]
    return passed


def _build_idle_table(pieces: _Pieces, gaps: _Gaps, kernels: pa.Table) -> pa.Table:
    of_files = FILE in kernels.column_names
    by_file = (gaps.file[pieces.gap],) if of_files else ()
    order = order_by(*by_file, pieces.gap, pieces.start)
    gap = pieces.gap[order]
    device = gaps.device[gap]
    stream = gaps.stream[gap]
    columns = {
        "device": number_or_null(device, INT32),
        "stream": number_or_null(stream, INT64),
        "gap_start_ns": build_numbers(gaps.start[gap], INT64),
        "gap_end_ns": build_numbers(gaps.end[gap], INT64),
        "cause": decode_texts(pieces.cause[order], pa.array(CAUSES)),
        "start_ns": build_numbers(pieces.start[order], INT64),
        "end_ns": build_numbers(pieces.end[order], INT64),
        "next_event": build_numbers(read_numbers(kernels["event"])[gaps.row[gap]], INT64),
    }
    if of_files:
        columns[FILE] = build_numbers(gaps.file[gap], INT64)
    return pa.table(columns)
