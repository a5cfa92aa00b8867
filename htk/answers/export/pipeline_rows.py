"""Rows cut from a pipeline's profiles, held against its schedule before anybody reads them.

Each micro-batch has one forward and one backward on each stage (in interleaved schedules: of each
chunk of the model), one message to or from each neighbour for each, sent once it is computed and
received before it is. What does not agree is another schedule, or another use of the messages, and
is refused.
"""

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.errors import MissingTable
from htk.base.schema.operation_types import CALLS, CODES, ROW_TYPES

_FORWARD = CODES["forward_compute"]
_BACKWARD = CODES["backward_compute"]
_CLIP = CODES["clip_grads"]
_GATHER = CODES["params_all_gather"]
_REDUCTIONS = (CODES["grads_all_reduce"], CODES["grads_reduce_scatter"])
_SLACK_NS = 10_000  # between streams of a device
_MESSAGES = tuple(CODES[f"{w}_{s}"] for w in ("forward", "backward") for s in ("send", "recv"))
CUTTING = (_CLIP, *_MESSAGES)
# The type of each set of messages, a bit for each of them.
_CALLS = np.full(1 << len(_MESSAGES), NONE)
for _name, _sent in CALLS.items():
    _CALLS[sum(1 << _MESSAGES.index(CODES[m]) for m in _sent)] = ROW_TYPES.index(_name)

Columns = dict[str, Ints]


def pipeline_rows(columns: Columns, stages: int, *, is_interleaved: bool) -> Columns:
    """Return the rows that a pipeline's schedule has, or refuse them; `launched` says when the
    host launched each."""
    order = order_by(columns["rank"], columns["step"], columns["launched"])
    rows = {name: values[order] for name, values in columns.items()}
    steps = Groups.by_keys([rows["rank"], rows["step"]])
    _refuse_between_micro_batches(rows, steps)
    chunks = _count_chunks(rows, steps, stages) if is_interleaved else 1
    _number_chunks(rows, stages, chunks)
    _match_messages(rows, steps, stages, chunks)
    return _one_row_a_call(rows)


def _mark_passes(rows: Columns, way: str, kind: str) -> Mask:
    return np.asarray(rows["type"] == CODES[f"{way}_{kind}"])


def _count_chunks(rows: Columns, steps: Groups, stages: int) -> int:
    """Return how many chunks each stage runs: the first one's forwards receive nothing on stage 0,
    and micro-batches come in groups of as many as there are stages."""
    first = rows["stage"] == 0
    forwards = int((first & _mark_passes(rows, "forward", "compute")).sum())
    batches = forwards - int((first & _mark_passes(rows, "forward", "recv")).sum())
    chunks = forwards // max(batches, 1)
    if chunks < 2 or forwards != batches * chunks:
        raise MissingTable(
            f"the first stage has {forwards} forwards and receives {forwards - batches} of them, "
            f"which is no whole number of model chunks; {_EXPECTED}"
        )
    passes = _count_rows(steps, _mark_passes(rows, "forward", "compute"))
    if (passes % (stages * chunks)).any():
        raise MissingTable(
            f"micro-batches of an interleaved step are no multiple of its {stages} stages; "
            f"{_EXPECTED}"
        )
    return chunks


def _number_chunks(rows: Columns, stages: int, chunks: int) -> None:
    """Number chunks and micro-batches: until here passes of a step and worker are counted."""
    backward = _mark_passes(rows, "backward", "compute")
    passes = backward | _mark_passes(rows, "forward", "compute")
    group, within = np.divmod(rows["micro_batch"][passes], stages * chunks)
    chunk, batch = np.divmod(within, stages)
    rows["chunk"][passes] = np.where(backward[passes], chunks - 1 - chunk, chunk)
    rows["micro_batch"][passes] = group * stages + batch


def _match_messages(rows: Columns, steps: Groups, stages: int, chunks: int) -> None:
    """The n-th message is of the n-th pass that has one: it gets the chunk, unless it cannot be."""
    position = rows["chunk"] * stages + rows["stage"]
    last = chunks * stages - 1
    passes = _count_rows(steps, _mark_passes(rows, "forward", "compute"))
    _expect_counts(
        rows, steps, _mark_passes(rows, "backward", "compute"), passes, "backwards", passes
    )
    for way in ("forward", "backward"):
        compute = _mark_passes(rows, way, "compute")
        for side in ("recv", "send"):
            to_later = (way == "forward") == (side == "send")
            own = compute & (position < last if to_later else position > 0)
            messages = _mark_passes(rows, way, side)
            _expect_counts(
                rows, steps, messages, _count_rows(steps, own), f"rows of {way}_{side}", passes
            )
            before, after = (messages, own) if side == "recv" else (own, messages)
            early = rows["start_ns"][after] + _SLACK_NS < rows["end_ns"][before]
            if early.any():
                row = int(np.flatnonzero(own)[np.argmax(early)])
                reason = "starts before it is received" if side == "recv" else "is sent too early"
                raise MissingTable(
                    f"rank {rows['rank'][row]} has, in step {rows['step'][row]}, a {way} that "
                    f"{reason}; {_EXPECTED}"
                )
            rows["chunk"][messages] = rows["chunk"][own]


def _one_row_a_call(rows: Columns) -> Columns:
    """Make one row of the messages that a kernel sends and receives."""
    messages = np.flatnonzero(np.isin(rows["type"], list(_MESSAGES)))
    calls = Groups.by_keys([rows[c][messages] for c in ("rank", "launched")])
    bits = np.array([1 << _MESSAGES.index(t) for t in rows["type"][messages].tolist()], np.int64)
    several = (calls.count > 1)[calls.group_ids]
    if (calls.distinct(bits) < calls.count).any():
        row = int(messages[np.argmax((calls.distinct(bits) < calls.count)[calls.group_ids])])
        raise MissingTable(
            f"rank {rows['rank'][row]} has a kernel with several messages of one sort in step "
            f"{rows['step'][row]}; {_EXPECTED}"
        )
    type_ = _CALLS[calls.sum(bits)][calls.group_ids]
    rows["type"][messages[several]] = type_[several]
    rows["chunk"][messages[several]] = NONE
    kept = np.ones(len(rows["type"]), bool)
    kept[messages] = False
    kept[messages[calls.first_row]] = True
    return {name: values[kept] for name, values in rows.items()}


def _count_rows(steps: Groups, chosen: Mask) -> Ints:
    return np.asarray(np.bincount(steps.group_ids[chosen], minlength=len(steps)), np.int64)


def _expect_counts(
    rows: Columns, steps: Groups, chosen: Mask, expected: Ints, noun: str, passes: Ints
) -> None:
    counts = _count_rows(steps, chosen)
    if (counts != expected).any():
        group = int(np.argmax(counts != expected))
        rank, step = steps.keys[group].tolist()
        raise MissingTable(
            f"rank {rank} has {counts[group]} {noun} in step {step} and {passes[group]} forwards, "
            f"expected {expected[group]}; {_EXPECTED}"
        )


_EXPECTED = (
    "rows can be cut from profiles of GPipe, 1F1B and interleaved 1F1B with one message for each "
    "pass; for other schedules log rows with htk.capture(operations=True)"
)


def _refuse_between_micro_batches(rows: Columns, steps: Groups) -> None:
    """Gradients are reduced with the last backward; parameters gathered with the first forward."""
    launched = rows["launched"]
    batch = rows["micro_batch"]
    never = np.iinfo(np.int64).max
    backward = _mark_passes(rows, "backward", "compute")
    last = steps.max(np.where(backward, launched, np.iinfo(np.int64).min))[steps.group_ids]
    second = _mark_passes(rows, "forward", "compute") & (batch == 1)
    after = steps.min(np.where(second, launched, never))[steps.group_ids]
    amid = np.isin(rows["type"], _REDUCTIONS) & (launched < last)
    amid |= (rows["type"] == _GATHER) & (launched > after) & (launched < last)
    if amid.any():
        row = int(np.argmax(amid))
        raise MissingTable(
            f"rank {rows['rank'][row]} gathers parameters or reduces gradients between the "
            f"micro-batches of step {rows['step'][row]} (FSDP within a pipeline, say); log rows "
            "with htk.capture(operations=True)"
        )
