"""Forward, backward, optimizer, data loading: the pass of each operator and each GPU activity.

Decided once, and by the strongest evidence there is, which the column `basis` names:

1. `sequence`: autograd's sequence numbers and forward threads. What carries a forward thread, or is
   linked to a forward operator, is backward; the operator that it is linked to is forward.
2. `autograd thread`: what the autograd engine evaluates, and all else on its threads, is backward.
3. `user range`: the innermost range round it that names a pass, as `annotation_links` nests them.
4. `name`: of the operator, or of one round it.
5. `order`: what begins before the last backward operator of its step is forward, and all of a
   process that has no backward pass. The same holds for what is launched outside operators (a
   replay of a CUDA graph, a kernel called from Python), unless kernels named after gradients or
   optimizers show that graphs hold whole steps of training.

An operator inside a backward one is backward, whatever it is: forward work that is done again there
is `recomputed`.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    codes_of,
    decode_texts,
    mark_valid,
    match_texts,
    read_booleans,
    read_keys,
    read_numbers,
)
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.nesting import Int32, Threads, files_of
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, take_or
from htk.base.names.phases import (
    BACKWARD,
    ENGINE,
    FORWARD,
    OTHER,
    PHASES,
    is_gradient,
    is_of_training,
    phase_of_op,
    phase_of_range,
)
from htk.base.schema import DERIVED
from htk.quantities.derived.captures import captured_ops
from htk.quantities.derived.user_ranges import find_enclosing_ranges

BASES = ("sequence", "autograd thread", "user range", "name", "order")
_SEQUENCE, _THREAD, _RANGE, _NAME, _ORDER = range(len(BASES))
_HOOKS = 8  # operators of hooks for each evaluation, at most; a few evaluations come by the way
_RUN = 3  # operators in a row that are the forward pass's own, not a likeness


def op_passes(
    cpu_ops: pa.Table, op_links: pa.Table, annotations: pa.Table, annotation_links: pa.Table
) -> pa.Table:
    """Return the pass of each operator, what tells it, and whether it is forward work done again.

    Backward evidence of an operator holds for all inside it.
    """
    calls = _Calls(op_links)
    linked = (read_numbers(cpu_ops["forward_thread"]) > 0) | mark_valid(op_links["forward_row"])
    by_sequence = calls.inside(linked)
    evaluated = match_texts(cpu_ops["name"], lambda name: name.startswith(ENGINE))
    threads = Threads().number_threads(cpu_ops)
    engine = _autograd_threads(threads, evaluated, cpu_ops, op_links, calls)
    of_engine = np.isin(threads, engine)
    backward = by_sequence | calls.inside(evaluated) | of_engine
    phase = np.where(backward, BACKWARD, OTHER)
    basis = np.where(by_sequence, _SEQUENCE, np.where(backward, _THREAD, NONE))

    def decide_phase(source: int, value: Ints) -> None:
        new = (basis == NONE) & (value != OTHER)
        phase[new] = value[new]
        basis[new] = source

    decide_phase(_SEQUENCE, _made_nodes(cpu_ops, op_links, calls, backward))
    decide_phase(_RANGE, _of_ranges(annotations, annotation_links, op_links, cpu_ops))
    decide_phase(_NAME, calls.inherited(_find_phases(cpu_ops["name"], phase_of_op)))
    decide_phase(_ORDER, _before_backward(phase == BACKWARD, cpu_ops, op_links))
    backward |= (phase == BACKWARD) & (basis == _NAME)
    again = _mark_recomputed(cpu_ops, threads, calls, backward)
    return _build_pass_table("op_passes", phase, basis, again)


def kernel_passes(
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    launch_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_passes: pa.Table,
    annotations: pa.Table,
    annotation_links: pa.Table,
) -> pa.Table:
    """Return the pass of each GPU activity: that of the operator that launched it.

    What a CUDA graph replays has that of the operator that was captured. What was launched outside
    operators goes by the thread and the user range of its launch, then by the order of its step.
    """
    captured, _ = captured_ops(kernels, kernel_links, launches, launch_links)
    op = np.where(captured != NONE, captured, read_numbers(kernel_links["op_row"], NONE))
    phase = take_or(_code_words(op_passes["phase"], PHASES), op, OTHER)
    basis = take_or(_code_words(op_passes["basis"], BASES), op)
    again = take_or(read_booleans(op_passes["recomputed"]), op, False)
    launch = read_numbers(kernel_links["launch_row"], NONE)
    outside = op == NONE
    on_engine = outside & take_or(_launched_by_engine(launches, cpu_ops, op_links), launch, False)
    phase[on_engine], basis[on_engine] = BACKWARD, _THREAD
    ranged = _of_ranges(annotations, annotation_links, kernel_links, kernels)
    named = outside & ~on_engine & (ranged != OTHER)
    phase[named], basis[named] = ranged[named], _RANGE
    ordered_ones = outside & ~on_engine & ~named & (launch != NONE)
    before = ordered_ones & _launched_before_backward(
        kernels, kernel_links, launches, launch, cpu_ops, op_links, op_passes
    )
    phase[before], basis[before] = FORWARD, _ORDER
    unknown = outside & (launch == NONE) & (basis == NONE)  # its launch was not recorded
    return _build_pass_table("kernel_passes", np.where(unknown, NONE, phase), basis, again)


def _build_pass_table(name: str, phase: Ints, basis: Ints, recomputed: Mask) -> pa.Table:
    columns = [
        decode_texts(phase, pa.array(PHASES)),
        decode_texts(basis, pa.array(BASES)),
        build_booleans(recomputed),
    ]
    return pa.table(columns, schema=DERIVED[name])


def _code_words(column: pa.ChunkedArray, words: tuple[str, ...]) -> Ints:
    """Return the place of each text among the words; NONE for null."""
    codes, texts = codes_of(column)
    return np.array([*(words.index(t) for t in texts.to_pylist()), NONE], np.int64)[codes]


class _Calls:
    """What lies inside what, callers first."""

    def __init__(self, op_links: pa.Table) -> None:
        self.parent = read_numbers(op_links["parent_row"], NONE)
        depth = read_numbers(op_links["depth"]).astype(np.int64)
        order = order_by(depth)
        ends = np.cumsum(np.bincount(depth)) if len(order) else np.empty(0, np.int64)
        self._inner = np.split(order, ends[:-1])[1:] if len(ends) else []

    def inside(self, chosen: Mask) -> Mask:
        """Return the chosen operators and all inside them."""
        marked = chosen.copy()
        for rows in self._inner:  # as often as operators are nested
            marked[rows] |= marked[self.parent[rows]]
        return marked

    def inherited(self, phase: Ints) -> Ints:
        """Return the phase of each operator, else that of the nearest one round it."""
        phase = phase.copy()
        for rows in self._inner:
            phase[rows] = np.where(phase[rows] == OTHER, phase[self.parent[rows]], phase[rows])
        return phase

    def around(self, chosen: Mask, through: Mask) -> Mask:
        """Return the chosen operators and those round them, as far as `through` holds."""
        marked = chosen.copy()
        for rows in reversed(self._inner):
            marked[self.parent[rows[marked[rows] & through[self.parent[rows]]]]] = True
        return marked


def _find_phases(names: pa.ChunkedArray, phase_of: Callable[[str], int]) -> Ints:
    """Return the phase that each name tells; asked once for each distinct name."""
    codes, texts = codes_of(names)
    return np.array([*(phase_of(t) for t in texts.to_pylist()), OTHER], np.int64)[codes]


def _autograd_threads(
    threads: Int32, evaluated: Mask, cpu_ops: pa.Table, op_links: pa.Table, calls: _Calls
) -> Ints:
    """Return threads of the autograd engine: they evaluate, and do little else.

    A main thread evaluates too where the backward pass runs on the CPU, or where a gradient is
    asked for by the way; but it is the one that made the nodes. A thread that begins with an
    evaluation, where others are seen to make nodes, may run hooks besides (FSDP's copies and
    collectives, outside of any evaluation); others must evaluate more than they do besides.
    """
    if not evaluated.any():
        return np.empty(0, np.int64)
    outer = read_numbers(op_links["depth"]) == 0
    forward = read_numbers(op_links["forward_row"], NONE)
    made_nodes = np.zeros(len(threads), bool)
    made_nodes[forward[forward != NONE]] = True
    made_nodes &= ~calls.inside(evaluated)
    counts = int(threads.max(initial=-1)) + 1
    by_engine = np.bincount(threads[outer & evaluated], minlength=counts)
    besides = np.bincount(threads[outer & ~evaluated], minlength=counts)
    makers = np.bincount(threads[made_nodes], minlength=counts)
    start = read_numbers(cpu_ops["start_ns"])
    first = np.full(counts, np.iinfo(np.int64).max)
    np.minimum.at(first, threads[evaluated], start[evaluated])
    before = np.bincount(threads[outer & (start < first[threads])], minlength=counts)
    file = np.zeros(counts, np.int64)
    file[threads] = files_of(cpu_ops)
    seen = np.bincount(file, makers)[file] > 0
    hooks = np.where((before == 0) & seen, _HOOKS, 1)
    return np.flatnonzero((hooks * by_engine > besides) & (makers == 0))


def _launched_by_engine(launches: pa.Table, cpu_ops: pa.Table, op_links: pa.Table) -> Mask:
    """Return which calls threads of the autograd engine made."""
    threads = Threads()
    of_ops = threads.number_threads(cpu_ops)
    evaluated = match_texts(cpu_ops["name"], lambda name: name.startswith(ENGINE))
    engine = _autograd_threads(of_ops, evaluated, cpu_ops, op_links, _Calls(op_links))
    return np.isin(threads.number_threads(launches), engine)


def _made_nodes(cpu_ops: pa.Table, op_links: pa.Table, calls: _Calls, backward: Mask) -> Ints:
    """Return FORWARD for operators to which backward ones are linked, what they call, and the
    operators (not ranges that were recorded as such) that called them."""
    forward = read_numbers(op_links["forward_row"], NONE)
    chosen = np.zeros(len(backward), bool)
    chosen[forward[forward != NONE]] = True
    chosen &= ~backward
    operators = match_texts(cpu_ops["name"], lambda name: "::" in name)
    forward_ops = calls.inside(chosen) | calls.around(chosen, operators)
    return np.where(forward_ops, FORWARD, OTHER)


def _of_ranges(
    annotations: pa.Table, annotation_links: pa.Table, links: pa.Table, rows: pa.Table
) -> Ints:
    """Return the phase that the innermost range round each row names that names one."""
    of_range = _find_phases(annotations["name"], phase_of_range)
    phase = np.full(links.num_rows, OTHER)
    for held, ranges in find_enclosing_ranges(annotations, annotation_links, links, rows):
        phase[held] = np.where(phase[held] == OTHER, of_range[ranges], phase[held])
    return phase


def _before_backward(backward: Mask, cpu_ops: pa.Table, op_links: pa.Table) -> Ints:
    """Return FORWARD for what begins before the last backward of its step, and for all of a
    process that has none."""
    process = codes_of(cpu_ops["process"])[0].astype(np.int64)
    start = read_numbers(cpu_ops["start_ns"])
    step = read_keys(op_links["step"])
    groups = Groups.by_keys([process, step])
    last = groups.max(np.where(backward, start, np.iinfo(np.int64).min))[groups.group_ids]
    trained = np.isin(process, np.unique(process[backward]))
    return np.where(~trained | (start < last), FORWARD, OTHER)


def _launched_before_backward(
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    launch: Ints,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_passes: pa.Table,
) -> Mask:
    """Return which activities were launched before the last backward operator of their step, or by
    a process that runs operators and has no backward pass."""
    outside = read_numbers(kernel_links["op_row"], NONE) == NONE
    if match_texts(kernels["name"], is_of_training)[outside].any():
        return np.zeros(len(launch), bool)
    backward = match_texts(op_passes["phase"], "backward".__eq__)
    process, of_launch = _numbered_alike(cpu_ops["process"], launches["process"])
    process_of = take_or(of_launch, launch)
    trained = np.isin(process_of, np.unique(process[backward]))
    steps = [process, read_keys(op_links["step"])]
    of_step = Groups.by_keys([column[backward] for column in steps])
    last = of_step.max(read_numbers(cpu_ops["start_ns"])[backward])
    wanted = [process_of, read_keys(kernel_links["step"])]
    step = row_of(of_step.keys, np.column_stack(wanted))
    before = (step != NONE) & (
        read_numbers(kernel_links["launch_start_ns"]) < take_or(last, step, 0)
    )
    return np.where(trained, before, np.isin(process_of, np.unique(process)))


def _numbered_alike(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """Return numbers for the texts of two columns, the same for the same text."""
    codes = codes_of(pa.chunked_array([*left.chunks, *right.chunks], left.type))[0]
    numbered = codes.astype(np.int64)
    return numbered[: len(left)], numbered[len(left) :]


def _mark_recomputed(cpu_ops: pa.Table, threads: Int32, calls: _Calls, backward: Mask) -> Mask:
    """Return forward work that is done again inside backward (activation checkpointing).

    Autograd numbers operators only while it records: inside backward, what will be differentiated
    again. That is recomputed where it repeats a run of the forward pass, or where a checkpoint's
    node evaluates it; a gradient that is itself differentiated (create_graph) repeats nothing.
    """
    sequence = read_numbers(cpu_ops["sequence"], NONE)
    names = cpu_ops["name"]
    numbered = (sequence >= 0) & (read_numbers(cpu_ops["forward_thread"]) == 0)
    numbered &= backward & ~match_texts(names, is_gradient)
    checkpoint = match_texts(names, lambda name: "CheckpointFunctionBackward" in name)
    in_checkpoint = take_or(checkpoint, calls.parent, False)
    file = files_of(cpu_ops)
    without_numbers = np.bincount(file, sequence >= 0)[file] == 0  # of a profiler that records none
    again = without_numbers & in_checkpoint & backward & ~match_texts(names, is_gradient)
    if numbered.any():
        repeats = _mark_repeats(cpu_ops, threads, calls.parent, backward)
        again |= numbered & (in_checkpoint | repeats)
    return calls.inside(again)


def _mark_repeats(cpu_ops: pa.Table, thread: Int32, parent: Ints, backward: Mask) -> Mask:
    """Return operators of the backward pass in a run of three that also occurs in the forward pass.

    A run is of operators that one caller called one after the other.
    """
    if not backward.any():
        return np.zeros(len(backward), bool)
    name = codes_of(cpu_ops["name"])[0].astype(np.int64)
    order = order_by(thread, parent, read_numbers(cpu_ops["start_ns"]))
    count = len(order) - _RUN + 1
    repeated = np.zeros(len(order), bool)
    if count < 1:
        return repeated
    shifted = [order[k : k + count] for k in range(_RUN)]
    together = np.ones(count, bool)
    for rows in shifted[1:]:
        together &= (parent[rows] == parent[shifted[0]]) & (thread[rows] == thread[shifted[0]])
        together &= backward[rows] == backward[shifted[0]]
    behind = together & backward[shifted[0]]
    ahead = together & ~backward[shifted[0]]
    columns = [files_of(cpu_ops)[shifted[0]], *(name[rows] for rows in shifted)]
    runs = ([column[chosen] for column in columns] for chosen in (ahead, behind))
    seen = row_of(*runs) != NONE
    for rows in shifted:
        repeated[rows[behind][seen]] = True
    return repeated
