"""Links between calls, operators, steps and GPU work: made once for each file, vectorised.

Every maker takes tables of one file and returns a table with a row for each row of the table
that it speaks of. Each link says how it was found.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    build_booleans,
    build_nulls,
    build_numbers,
    decode_texts,
    mark_valid,
    match_texts,
    read_booleans,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import Nested, Rows, Threads, files_of, nest_rows
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes, mark_heads, repeat_rows, running_max
from htk.base.columns.types import NO_TIME, NONE, fill_none, take_or
from htk.base.schema import DERIVED, INT32, INT64
from htk.quantities.derived.user_ranges import UserRanges


def kernel_links(
    kernels: pa.Table,
    launches: pa.Table,
    cpu_ops: pa.Table,
    annotations: pa.Table,
    flows: pa.Table,
    op_links: pa.Table,
) -> pa.Table:
    """Return the call, operator, step and range that launched each GPU activity."""
    threads = Threads()
    ops = nest_rows(cpu_ops, threads, known_parent=read_numbers(op_links["parent_row"], NONE))
    launch_thread = threads.number_threads(launches)
    launch_start, launch_end = read_times(launches)
    launch = _launch_of(kernels, launches)
    linked = launch != NONE
    op = fill_none(len(kernels))
    around = _operators_of_calls(launches, cpu_ops, ops, launch_thread)
    op[linked] = around[launch[linked]]
    by_nesting = op != NONE
    named = _op_by_external_id(kernels, cpu_ops)
    named[take_or(ops.start, named, NO_TIME) > read_numbers(kernels["start_ns"])] = NONE
    by_id = ~by_nesting & _fill_rows(op, ~by_nesting, named)
    moment, thread = _find_launch_moment(
        launch, launch_start, launch_thread, cpu_ops, op, ops.thread.astype(np.int32)
    )
    by_flow = np.zeros(len(kernels), bool)
    if (moment == NONE).any() and len(flows):
        by_flow = _follow_flows(kernels, flows, threads, ops, moment, thread, op)
    # One call launches a whole graph, or a whole program of a TPU.
    starts_many = match_texts(launches["name"], lambda n: "GraphLaunch" in n)
    starts_many |= match_texts(launches["api"], "tpu_runtime".__eq__)
    graph = take_or(starts_many, launch, False)
    how = np.select([~linked, graph], [NONE, 1], 0)
    op_how = np.select([by_nesting, by_id, by_flow & (op != NONE)], [0, 1, 2], NONE)
    return pa.table(
        [
            _build_row_column(launch),
            decode_texts(how, pa.array(["correlation", "graph"])),
            build_numbers(take_or(launch_start, launch, 0), INT64, linked),
            build_numbers(take_or(launch_end, launch, 0), INT64, linked),
            _build_row_column(op),
            decode_texts(op_how, pa.array(["nesting", "external_id", "flow"])),
            _step_column(_steps_of_activities(kernels, annotations, moment)),
            _build_row_column(UserRanges(annotations, cpu_ops, threads).around(thread, moment)),
            build_booleans(_carry_in(kernels, launches, linked)),
            build_booleans(linked & is_ambiguous(kernels, launches)),
        ],
        schema=DERIVED["kernel_links"],
    )


def op_links(cpu_ops: pa.Table, annotations: pa.Table) -> pa.Table:
    """Return the caller, depth, step, range and forward operator of each operator."""
    threads = Threads()
    ops = nest_rows(cpu_ops, threads)
    forward, how = _link_forward(cpu_ops, ops)
    ranges = UserRanges(annotations, cpu_ops, threads)
    return pa.table(
        [
            _build_row_column(ops.parent),
            build_numbers(ops.depth, INT32),
            build_numbers(ops.thread, INT32),
            _step_column(_steps_at(annotations, ops.start)),
            _build_row_column(forward),
            decode_texts(how, pa.array(["sequence", "parent"])),
            _build_row_column(ranges.around(ops.thread.astype(np.int32), ops.start)),
            build_booleans(np.ones(len(cpu_ops), bool)),
        ],
        schema=DERIVED["op_links"],
    )


def launch_links(
    launches: pa.Table,
    cpu_ops: pa.Table,
    annotations: pa.Table,
    kernels: pa.Table,
    op_links: pa.Table,
) -> pa.Table:
    """Return the operator and step of each launching call, and how much it launched."""
    threads = Threads()
    ops = nest_rows(cpu_ops, threads, known_parent=read_numbers(op_links["parent_row"], NONE))
    start = read_numbers(launches["start_ns"])
    launch = _launch_of(kernels, launches)
    launched = np.bincount(launch[launch != NONE], minlength=len(launches))
    return pa.table(
        [
            _build_row_column(
                _operators_of_calls(launches, cpu_ops, ops, threads.number_threads(launches))
            ),
            _step_column(_steps_at(annotations, start)),
            build_numbers(launched, INT64),
        ],
        schema=DERIVED["launch_links"],
    )


def _launch_of(kernels: pa.Table, launches: pa.Table) -> Rows:
    """Return the call with the activity's correlation id that began last before the activity.

    Of a driver's call inside a runtime's that is the driver's; of calls that share an id because
    ids were used anew, the latest. A call that begins after the activity did not launch it.
    """
    ids = read_numbers(launches["correlation"])
    usable = np.flatnonzero(mark_valid(launches["correlation"]) & (ids > 0))
    wanted = read_numbers(kernels["correlation"])
    calls = SegmentTimes(ids[usable], read_numbers(launches["start_ns"])[usable])
    last = calls.last(wanted, read_numbers(kernels["start_ns"]))
    return np.where(wanted > 0, take_or(usable, last), NONE)


def is_ambiguous(kernels: pa.Table, launches: pa.Table) -> NDArray[np.bool_]:
    """Return which activities have the id of several calls that are not inside one another."""
    ids = read_numbers(launches["correlation"])
    rows = np.flatnonzero(mark_valid(launches["correlation"]) & (ids > 0))
    start, end = read_times(launches)
    rows = rows[order_by(ids[rows], start[rows], -end[rows])]
    reach = running_max(mark_heads(ids[rows]), end[rows])
    apart = (ids[rows][1:] == ids[rows][:-1]) & (start[rows][1:] >= reach[:-1])
    reused = np.unique(ids[rows][1:][apart])
    return np.isin(read_numbers(kernels["correlation"]), reused)


def _operators_of_calls(
    launches: pa.Table, cpu_ops: pa.Table, ops: Nested, thread: NDArray[np.int32]
) -> Rows:
    """Return the innermost operator round each call.

    Where one begins or ends at the very time of the call, the call's id tells which it is.
    """
    time = read_numbers(launches["start_ns"])
    around = ops.around(thread, time)
    named = _op_by_external_id(launches, cpu_ops)
    start = np.append(ops.start, NO_TIME)
    end = take_or(ops.end, named, NO_TIME)
    is_open = (take_or(ops.thread, named) == thread) & (start[named] <= time)
    is_open &= (named != NONE) & (time <= end)
    return np.where(is_open & ((start[around] == time) | (end == time)), named, around)


def _op_by_external_id(rows: pa.Table, cpu_ops: pa.Table) -> Rows:
    ids = read_numbers(cpu_ops["external_id"])
    usable = np.flatnonzero(ids > 0)
    wanted = read_numbers(rows["external_id"])
    ops = look_up(ids[usable], usable, wanted)
    ops[wanted <= 0] = NONE
    return ops


def look_up(keys: Rows, rows: Rows, wanted: Rows) -> Rows:
    """Return the row of the last equal key, or `NONE`."""
    if not len(keys):
        return fill_none(len(wanted))
    if (keys[1:] < keys[:-1]).any():
        order = order_by(keys)
        keys = keys[order]
        rows = rows[order]
    position = np.searchsorted(keys, wanted, side="right") - 1
    hit = (position >= 0) & (keys[np.maximum(position, 0)] == wanted)
    return np.where(hit, rows[np.maximum(position, 0)], NONE)


def _fill_rows(target: Rows, where: NDArray[np.bool_], source: Rows) -> NDArray[np.bool_]:
    """Put source into target where asked; says where it put something."""
    put: NDArray[np.bool_] = where & (source != NONE)
    target[put] = source[put]
    return put


def _find_launch_moment(
    launch: Rows,
    launch_start: Rows,
    launch_thread: NDArray[np.int32],
    cpu_ops: pa.Table,
    op: Rows,
    op_thread: NDArray[np.int32],
) -> tuple[Rows, NDArray[np.int32]]:
    """Return when and on which thread each activity was launched: its call, else its operator."""
    op_start = np.append(read_numbers(cpu_ops["start_ns"]), NONE)
    moment = np.where(launch != NONE, take_or(launch_start, launch), op_start[op])
    thread = np.where(
        launch != NONE,
        take_or(launch_thread, launch, np.int32(NONE)),
        take_or(op_thread, op, np.int32(NONE)),
    )
    return moment, thread.astype(np.int32)


def _follow_flows(
    kernels: pa.Table,
    flows: pa.Table,
    threads: Threads,
    ops: Nested,
    moment: Rows,
    thread: NDArray[np.int32],
    op: Rows,
) -> NDArray[np.bool_]:
    """Follow, as a last resort, arrows that end at activities' correlations to CPU threads."""
    starts = flows.filter(
        pa.array(match_texts(flows["category"], "ac2g".__eq__) & read_booleans(flows["is_start"]))
    )
    keys = read_numbers(starts["flow"], NONE)
    arrows = look_up(keys, np.arange(len(keys)), read_numbers(kernels["correlation"], NONE))
    has_id = read_numbers(kernels["correlation"], NONE) > 0
    use: NDArray[np.bool_] = (moment == NONE) & (arrows != NONE) & has_id
    if use.any():
        moment[use] = read_numbers(starts["time_ns"])[arrows[use]]
        thread[use] = threads.number_threads(starts)[arrows[use]]
        op[use] = ops.around(thread[use], moment[use])
    return use


def _carry_in(
    kernels: pa.Table, launches: pa.Table, linked: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which unlinked activities precede all on their stream launched while recording.

    Streams run in order, so what precedes the first linked activity was launched before it. On a
    stream without any linked activity the id decides: ids only grow.
    """
    if not len(launches) or linked.all():
        return np.zeros(len(kernels), bool)
    start = read_numbers(kernels["start_ns"])
    never = np.iinfo(np.int64).max
    file = files_of(kernels)
    streams = [file, *(read_numbers(kernels[c], NONE) for c in ("stream", "device"))]
    stream_ids = Groups.by_keys(streams).group_ids
    first = np.full(int(stream_ids.max(initial=-1)) + 1, never, np.int64)
    np.minimum.at(first, stream_ids[linked], start[linked])
    ids = read_numbers(launches["correlation"])
    launched_in = files_of(launches)
    first_id = np.full(int(max(file.max(initial=0), launched_in.max())) + 1, never, np.int64)
    np.minimum.at(first_id, launched_in[ids > 0], ids[ids > 0])
    first_id[first_id == never] = 0
    own = read_numbers(kernels["correlation"])
    early = np.where(
        first[stream_ids] < never, start < first[stream_ids], (own > 0) & (own < first_id[file])
    )
    return ~linked & early


def steps_of(annotations: pa.Table) -> tuple[NDArray[np.int32], Rows, Rows]:
    """Return the ProfilerSteps of the CPU in order of time: number, start, end."""
    rows = np.flatnonzero(mark_valid(annotations["step"]) & ~read_booleans(annotations["on_gpu"]))
    step = read_numbers(annotations["step"])[rows]
    start, end = read_times(annotations, rows)
    order = order_by(start, end)
    step = step[order]
    start = start[order]
    end = end[order]
    first = mark_heads(step)
    return step[first], start[first], end[first]


def _steps_at(annotations: pa.Table, time: Rows) -> NDArray[np.int32]:
    """Return the step that runs at each time, whichever thread asks."""
    step, start, end = steps_of(annotations)
    if not len(step):
        return np.full(len(time), NONE, np.int32)
    position = np.searchsorted(start, time, side="right") - 1
    inside = (position >= 0) & (time < end[np.maximum(position, 0)])
    return np.where(inside, step[np.maximum(position, 0)], NONE).astype(np.int32)


def _steps_of_activities(
    kernels: pa.Table, annotations: pa.Table, moment: Rows
) -> NDArray[np.int32]:
    """Return the step of each activity: that in which the host launched it; if the host marks none
    and the device does (a TPU), that in which it begins."""
    of_host = _steps_at(annotations, moment)
    has_step = mark_valid(annotations["step"])
    on_device = read_booleans(annotations["on_gpu"]) & mark_valid(annotations["device"])
    by_device = (
        has_step & on_device & ~mark_valid(annotations["stream"])
    )  # of no stream: of all of it
    if not by_device.any():
        return of_host
    of_hosts = files_of(annotations)[has_step & ~read_booleans(annotations["on_gpu"])]
    marks = annotations.filter(build_booleans(by_device))
    begin = read_numbers(kernels["start_ns"])
    marked = SegmentTimes(read_numbers(marks["device"]), read_numbers(marks["start_ns"]))
    last = marked.last(read_numbers(kernels["device"], NONE), begin)
    inside = (last != NONE) & (begin < take_or(read_numbers(marks["end_ns"]), last, NO_TIME))
    of_device = np.where(inside, take_or(read_numbers(marks["step"]), last), NONE)
    return np.where(np.isin(files_of(kernels), of_hosts), of_host, of_device).astype(np.int32)


def _link_forward(cpu_ops: pa.Table, ops: Nested) -> tuple[Rows, NDArray[np.int32]]:
    """Return the forward operator of each backward one, by sequence number, and how it was found.

    Autograd gives numbers by each forward thread on its own. Of the forward operators that share
    one the innermost made the autograd node, as Kineto's own arrows have it. Operators inside a
    backward one share its forward.
    """
    sequence = read_numbers(cpu_ops["sequence"], NONE)
    forward_thread = read_numbers(cpu_ops["forward_thread"])
    forward = fill_none(len(cpu_ops))
    how = np.full(len(cpu_ops), NONE, np.int32)
    is_forward = (sequence >= 0) & (forward_thread <= 0)
    ahead = ops.order[is_forward[ops.order]]
    behind = np.flatnonzero((sequence >= 0) & (forward_thread > 0))
    wanting, forward_ops = _made_before(ahead, behind, sequence, ops)
    good = _of_best_thread(forward_thread[wanting], ops.thread[forward_ops])
    forward[wanting[good]] = forward_ops[good]
    how[wanting[good]] = 0
    _inherit_links(forward, how, ops)
    return forward, how


def _made_before(ahead: Rows, behind: Rows, sequence: Rows, ops: Nested) -> tuple[Rows, Rows]:
    """Return backward operators and what each forward thread made under their number before: the
    innermost, so the last."""
    ahead = ahead[order_by(sequence[ahead])]
    last = mark_heads(sequence[ahead], ops.thread[ahead])
    ahead = ahead[np.append(last[1:], True)[: len(ahead)]]
    first = np.searchsorted(sequence[ahead], sequence[behind], "left")
    stop = np.searchsorted(sequence[ahead], sequence[behind], "right")
    row, nth = repeat_rows(stop - first)
    wanting = behind[row]
    forward_ops = ahead[first[row] + nth]
    before = ops.start[forward_ops] <= ops.start[wanting]  # in whole microseconds both at once
    return wanting[before], forward_ops[before]


def _of_best_thread(forward_thread: Rows, thread: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which pairs are of the thread that knows most of a forward thread's numbers.

    The trace names the forward thread by a number of its own, which no thread of it carries.
    """
    pairs = Groups.by_keys([forward_thread, thread])
    order = order_by(pairs.keys[:, 0], -pairs.count)
    best = np.zeros(len(pairs), bool)
    best[order[mark_heads(pairs.keys[order, 0])]] = True
    return best[pairs.group_ids]


def _inherit_links(forward: Rows, how: NDArray[np.int32], ops: Nested) -> None:
    """Give operators below a linked one its link: callers first, level by level."""
    if not (forward != NONE).any():
        return
    order = order_by(ops.depth)
    ends = np.cumsum(np.bincount(ops.depth))
    for rows in np.split(order, ends[:-1])[1:]:
        rows = rows[forward[rows] == NONE]
        above = forward[ops.parent[rows]]
        put = above != NONE
        forward[rows[put]] = above[put]
        how[rows[put]] = 1


def _build_row_column(rows: Rows) -> pa.Array:
    return build_numbers(rows, INT64, rows != NONE)


def _step_column(steps: NDArray[np.int32]) -> pa.Array:
    return build_numbers(steps, INT32, steps != NONE) if len(steps) else build_nulls(INT32, 0)
