"""What cannot have happened and cannot be mended, as nothing tells how it was: named, and kept."""

import re
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, match_texts, read_lengths, read_numbers, read_times
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import Threads
from htk.base.columns.types import NO_TIME, NONE, Floats, Ints, Mask
from htk.base.mappings import Facts, NamedTables
from htk.base.names.counters import RANGE_PROFILER
from htk.base.names.kinds import is_copy_over_the_host_link
from htk.parsers.common.mixed_gpus import find_calls, find_mixed_gpus
from htk.physics.detected import device_of
from htk.quantities.derived.captures import captured_calls
from htk.quantities.derived.cut_header import BY_ACTIVITY
from htk.quantities.derived.links import look_up

TICK_NS = 1000  # stamps of whole microseconds may overlap by one
# Bytes in a ns, far above what any link to a host and any memory reached when this was written.
_HOST_RATE = 1000
_MEMORY_RATE = 20_000
_PRODUCT_TFLOPS = 20_000.0  # above any GPU's peak when this was written
_BEYOND_PEAK = 1.1  # clocks beyond the published one
_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}  # first factor
_LAUNCH = re.compile(r"Launch\w*Kernel")
_FEWEST, _LOST_PCT = 10, 5  # calls or activities without the other half: fewer are the edges'


class Impossible(NamedTuple):
    """What was seen, as a row of the table `parse_issues`."""

    kind: str
    event: int
    text: str
    times: int


def report_impossible(
    seen: list[Impossible], spans: pa.Table, rows: Ints, kind: str, text: str
) -> None:
    """Add what was seen in rows of a table, if there are any."""
    if len(rows):
        event = int(read_numbers(spans["event"], NONE)[rows[0]])
        seen.append(Impossible(kind, event, text, len(rows)))


def name_doubtful(tables: NamedTables, facts: Facts, seen: list[Impossible]) -> None:
    """Add what is wrong with the copies, products and launches of a recording with GPU work."""
    kernels = tables["kernels"]
    text = "copy faster than any link or memory: its size or its length is wrong"
    report_impossible(seen, kernels, _fast_copies(kernels), "impossible_copy", text)
    text = "activity of a context that has others on another GPU: one of them is wrong"
    report_impossible(seen, kernels, _split_contexts(kernels), "split_context", text)
    text = "activity without a name: kept"
    report_impossible(
        seen, kernels, np.flatnonzero(~match_texts(kernels["name"], bool)), "no_name", text
    )
    launches = tables.get("launches")
    is_launched = np.zeros(kernels.num_rows, bool)
    if launches is not None and launches.num_rows:
        text = "activity that waits for one of another GPU as for its own: numbers are mixed up"
        calls = find_calls(kernels, launches)
        report_impossible(
            seen, kernels, find_mixed_gpus(kernels, launches, calls), "mixed_gpus", text
        )
        _name_other_operators(kernels, launches, calls, seen)
        is_launched = calls[1] > 0
        if not facts.get(BY_ACTIVITY):  # the others were left out on purpose
            _name_lost_activities(kernels, launches, seen)
        _name_lost_launches(kernels, is_launched, seen)
    cpu_ops = tables.get("cpu_ops")
    if cpu_ops is None or not cpu_ops.num_rows:
        return
    if launches is not None and launches.num_rows:
        _name_other_operators_of_calls(launches, cpu_ops, seen)
    operator = _find_operators(kernels, cpu_ops)
    begins = read_numbers(cpu_ops["start_ns"])[operator]
    is_later = ~is_launched & (operator != NONE)
    is_later &= begins > read_numbers(kernels["start_ns"]) + TICK_NS
    text = "activity of an operator that begins after it, by their ids: not linked to it"
    report_impossible(seen, kernels, np.flatnonzero(is_later), "later_operator", text)
    text = "matrix product beyond the GPU's peak: its shapes or the times of its kernels are wrong"
    fast = _fast_products(kernels, cpu_ops, np.where(is_later, NONE, operator), facts)
    report_impossible(seen, cpu_ops, fast, "impossible_product", text)


def _split_contexts(kernels: pa.Table) -> Ints:
    """Return the activities of contexts that have several GPUs, of which each has one."""
    device = read_numbers(kernels["device"], NONE)
    if not (device != device[0]).any():
        return np.zeros(0, np.int64)
    context = read_numbers(kernels["context"], NONE)
    pairs = Groups.by_keys([context, device])
    contexts, gpus = np.unique(pairs.keys[:, 0], return_counts=True)
    return np.flatnonzero((context > 0) & np.isin(context, contexts[gpus > 1]))


def _name_other_operators_of_calls(
    launches: pa.Table, cpu_ops: pa.Table, seen: list[Impossible]
) -> None:
    """Add calls that by their ids are of operators of another thread or time, if they are many."""
    threads = Threads()
    of_calls = threads.number_threads(launches)
    of_operators = threads.number_threads(cpu_ops)
    operator = _find_operators(launches, cpu_ops)
    is_named = operator != NONE
    is_apart = is_named & (of_operators[operator] != of_calls)
    apart = np.flatnonzero(is_apart)
    if _is_much(apart, is_named):
        text = "call that by its id is of an operator of another thread: not linked to it"
        report_impossible(seen, launches, apart, "other_thread", text)
    begins = read_numbers(launches["start_ns"])
    opened, closed = (column[operator] for column in read_times(cpu_ops))
    is_outside = (begins < opened - TICK_NS) | (begins > closed + TICK_NS)
    # In 2023 what had no operator was written with its correlation for an id.
    is_outside &= read_numbers(launches["external_id"]) != read_numbers(launches["correlation"])
    outside = np.flatnonzero(is_named & ~is_apart & is_outside)
    if _is_much(outside, is_named):
        text = "call outside the operator that it is of by its id: not linked to it"
        report_impossible(seen, launches, outside, "other_time", text)


def _name_other_operators(
    kernels: pa.Table, launches: pa.Table, calls: tuple[Ints, Ints], seen: list[Impossible]
) -> None:
    """Add activities that by their ids are of another operator than the calls that launched them,
    if they are many: both ids come from one record."""
    call, count = calls
    of_activity = read_numbers(kernels["external_id"])
    of_call = read_numbers(launches["external_id"])[call]
    is_told = (count == 1) & (of_activity > 0) & (of_call > 0)
    apart = np.flatnonzero(is_told & (of_activity != of_call))
    if _is_much(apart, is_told):
        text = "activity of another operator than the call that launched it, by their ids: kept"
        report_impossible(seen, kernels, apart, "other_operator", text)


def _fast_copies(kernels: pa.Table) -> Ints:
    size = read_numbers(kernels["size_bytes"])
    length = read_lengths(kernels) + TICK_NS
    is_fast = size > _HOST_RATE * length
    if is_fast.any():
        with_host = match_texts(kernels["name"], is_copy_over_the_host_link)
        is_fast &= with_host | (size > _MEMORY_RATE * length)
    return np.flatnonzero(is_fast)


def name_lost_gpu(tables: NamedTables, facts: Facts, seen: list[Impossible]) -> None:
    """Add the launching calls of a recording without any GPU activity, which it does not leave out
    on purpose."""
    launches = tables["launches"]
    lost = np.flatnonzero(_may_launch(launches))
    counters = tables.get("counters")
    is_of_metrics = (
        counters is not None and match_texts(counters["process"], RANGE_PROFILER.__eq__).any()
    )
    if len(lost) >= _FEWEST and not is_of_metrics and not facts.get(BY_ACTIVITY):
        text = (
            "launch in a recording without any GPU activity: the profiler had no access to the "
            "GPU's counters, or another one had it"
        )
        report_impossible(seen, launches, lost, "lost_activity", text)


def _may_launch(launches: pa.Table) -> Mask:
    may_launch = match_texts(launches["name"], lambda n: bool(_LAUNCH.search(n)))
    may_launch[captured_calls(launches)] = False
    return may_launch


def _name_lost_activities(kernels: pa.Table, launches: pa.Table, seen: list[Impossible]) -> None:
    """Add calls whose activities are missing, if they are more than a recording's edges explain."""
    ids = read_numbers(launches["correlation"], NONE)
    launched = read_numbers(kernels["correlation"], NONE)
    has_work = np.isin(ids, launched[launched > 0])
    may_launch = _may_launch(launches)
    if np.count_nonzero(may_launch & ~has_work) < _FEWEST:
        return
    may_launch &= _mark_between(launches, has_work, np.zeros_like(ids))
    idle = np.flatnonzero(may_launch & ~has_work)
    if _is_much(idle, may_launch):
        text = "launch whose GPU activity is missing: the profiler lost activities"
        report_impossible(seen, launches, idle, "lost_activity", text)


def _name_lost_launches(kernels: pa.Table, is_launched: Mask, seen: list[Impossible]) -> None:
    """Add activities whose calls are missing, likewise."""
    within = read_numbers(kernels["graph_id"]) <= 0
    if np.count_nonzero(within & ~is_launched) < _FEWEST:
        return
    streams = (read_numbers(kernels[name], NONE) for name in ("device", "context", "stream"))
    within &= _mark_between(kernels, is_launched, *streams)
    orphans = np.flatnonzero(within & ~is_launched)
    if _is_much(orphans, within):
        text = "GPU activity whose launch is missing, among those that have one"
        report_impossible(seen, kernels, orphans, "lost_launch", text)


def _mark_between(spans: pa.Table, is_whole: Mask, *lanes: Ints) -> Mask:
    """Return what lies between the first and the last that is whole in its lane: before and after
    these a recording begins and ends."""
    start = read_numbers(spans["start_ns"])
    lane = Groups.by_keys(lanes)
    first = lane.min(np.where(is_whole, start, -NO_TIME))[lane.group_ids]
    last = lane.max(np.where(is_whole, start, NO_TIME))[lane.group_ids]
    return np.asarray((first <= start) & (start <= last))


def _is_much(lost: Ints, of: Mask) -> bool:
    return len(lost) >= _FEWEST and 100 * len(lost) >= _LOST_PCT * int(of.sum())


def _find_operators(spans: pa.Table, cpu_ops: pa.Table) -> Ints:
    """Return the operator that each activity or call is of by its id."""
    ids = read_numbers(cpu_ops["external_id"])
    usable = np.flatnonzero(ids > 0)
    wanted = read_numbers(spans["external_id"])
    operators: Ints = np.where(wanted > 0, look_up(ids[usable], usable, wanted), NONE)
    return operators


def _fast_products(kernels: pa.Table, cpu_ops: pa.Table, operator: Ints, facts: Facts) -> Ints:
    """Return the operators whose kernels would multiply faster than the GPU can."""
    is_product = match_texts(kernels["family"], "gemm".__eq__)
    products = np.unique(operator[is_product & (operator != NONE)])
    work = _count_flops(cpu_ops, products)
    if not work.any():
        return products[:0]
    is_linked = operator != NONE
    length_of = np.bincount(operator[is_linked], read_lengths(kernels)[is_linked])
    length = length_of[products]
    gpu = device_of(facts.get("device_name"), facts.get("device_properties")).gpu
    peaks = (gpu.fp16_tflops, gpu.bf16_tflops, gpu.fp8_tflops, gpu.fp4_tflops) if gpu else ()
    tflops = _BEYOND_PEAK * max((peak for peak in peaks if peak), default=_PRODUCT_TFLOPS)
    return np.asarray(products[work > 1000 * tflops * (length + TICK_NS)])


def _count_flops(cpu_ops: pa.Table, operators: Ints) -> Floats:
    """Return the work of those operators that are plain matrix products; 0 of the others."""
    name, names = codes_of(cpu_ops["name"])
    shape, shapes = codes_of(cpu_ops["input_dims"])
    first = np.array([*(_PRODUCTS.get(n, NONE) for n in names.to_pylist()), NONE])
    kinds = Groups.by_keys([first[name[operators]], shape[operators]])
    work = [
        0.0 if key[0] == NONE else _count_product_flops(shapes, *key) for key in kinds.keys.tolist()
    ]
    return np.array(work, float)[kinds.group_ids]


def _count_product_flops(shapes: pa.Array, first: int, shape: int) -> float:
    """Return 2·m·n·k, of each in a batch, from recorded shapes."""
    try:
        left, right = msgspec.json.decode(shapes[shape].as_py(), type=list)[first : first + 2]
        *batch, rows, inner = left
        return 2.0 * float(np.prod([*batch, rows, inner, right[-1]], dtype=float))
    except (ValueError, TypeError, IndexError, msgspec.DecodeError):
        return 0.0
