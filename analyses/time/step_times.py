"""How long each step took, on the host's clock and on the GPU's."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    mark_valid,
    number_or_null,
    read_booleans,
    read_numbers,
)
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, Mask
from htk.base.core.analysis import analysis
from htk.base.core.chart import Line
from htk.base.errors import MissingTable
from htk.base.schema import BOOL, INT32, INT64, table
from htk.quantities.measures.host_steps import host_steps, step_keys

RETURNS = table(
    rank=(INT32, "Global rank."),
    device=(INT32, "GPU index within the process; null where the step ran nothing on a GPU."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "k of ProfilerStep#k."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    start_ns=(INT64, "Start of the GPU step, else of the step on the host."),
    cpu_ns=(INT64, "Length of the annotation on the host: not the step time."),
    gpu_period_ns=(INT64, "Length of the GPU step: the step time."),
    duration_ns=(
        INT64,
        "The same; on a trace without GPU work the host's. Null for a step without GPU work beside "
        "others: its time is in the GPU step that follows.",
    ),
    launch_lag_ns=(INT64, "End of the GPU step less end of the step on the host."),
    skew_ns=(
        INT64,
        "Duration less the least of that step over ranks; null for a cut one.",
    ),
    over_usual_ns=(
        INT64,
        "Duration less the median over ranks; null for a cut one.",
    ),
)

_NONE = -1


@analysis(returns=RETURNS, chart=Line("step", "duration_ns", "rank"))
def step_times(step_windows: pa.Table, step_marks: pa.Table) -> pa.Table:
    """How long did each step take, on the GPU and on the host?

    The GPU step ends with the last GPU work that the step launched, and begins where the one
    before ended; the host's step only launches. The first begins with its first activity: where
    others wait for data before theirs, it is not complete. One step alone tells nothing of that.
    """
    cpu, finished = host_steps(step_marks)
    gpu = step_windows.filter(build_booleans(mark_valid(step_windows["step"])))
    keys = step_keys(gpu)
    alone = row_of(keys[:, :3], cpu[:, :3]) == _NONE
    if not len(keys) and not alone.any():
        raise MissingTable("no steps were recorded", "step_windows")
    host_rows = row_of(cpu[:, :3], keys[:, :3])
    host = np.append(cpu, [[_NONE] * 5], axis=0)
    rows = np.concatenate([host_rows, np.flatnonzero(alone)])
    on_host = host[rows]
    count = len(keys)
    complete = np.append(read_booleans(gpu["complete"]), finished[alone])
    device = np.append(read_numbers(gpu["device"], _NONE), np.full(len(rows) - count, _NONE))
    who = np.concatenate([keys[:, :3], cpu[alone, :3]])
    has_gpu = np.arange(len(rows)) < count
    has_cpu = rows != _NONE
    start = np.where(has_gpu, np.append(keys[:, 3], on_host[count:, 3]), on_host[:, 3])
    end = np.append(keys[:, 4], on_host[count:, 4])
    length = end - start
    comparable = complete & (has_gpu | ~has_gpu.any())  # host and GPU are not compared
    lowest, median = _over_ranks(who[:, 1:], length, comparable)
    columns = {
        "rank": number_or_null(who[:, 0], INT32),
        "device": number_or_null(device, INT32),
        "cycle": build_numbers(who[:, 1], INT32),
        "step": build_numbers(who[:, 2], INT32),
        "complete": build_booleans(complete),
        "start_ns": build_numbers(start, INT64),
        "cpu_ns": build_numbers(on_host[:, 4] - on_host[:, 3], INT64, has_cpu),
        "gpu_period_ns": build_numbers(length, INT64, has_gpu),
        "duration_ns": build_numbers(length, INT64, has_gpu | ~has_gpu.any()),
        "launch_lag_ns": build_numbers(end - on_host[:, 4], INT64, has_gpu & has_cpu),
        "skew_ns": build_numbers(length - lowest, INT64, comparable),
        "over_usual_ns": build_numbers(length - median, INT64, comparable),
    }
    table = pa.table(columns, schema=RETURNS)
    return table.take(build_numbers(order_by(who[:, 0], who[:, 1], who[:, 2], device), INT64))


def _over_ranks(step: Ints, length: Ints, complete: Mask) -> tuple[Ints, Ints]:
    """Shortest and median of each row's cycle and step, over the ranks that recorded it whole."""
    lowest = length.copy()
    median = length.copy()
    rows = np.flatnonzero(complete)
    if len(rows):
        steps = Groups.by_keys(step[rows])
        middle = np.rint(steps.quantiles(length[rows], [0.5])[0]).astype(np.int64)
        lowest[rows] = steps.min(length[rows])[steps.group_ids]
        median[rows] = middle[steps.group_ids]
    return lowest, median
