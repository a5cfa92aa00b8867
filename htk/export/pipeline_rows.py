"""Rows cut from a pipeline's profiles, held against its schedule before anybody reads them.

Each micro-batch has one forward and one backward on each stage, one message to or from each
neighbour for each, sent once it is computed and received before it is. What does not agree is
another schedule, or another use of the messages, and is refused.
"""

import numpy as np

from htk.columns.groups import Groups
from htk.columns.types import Ints, Mask
from htk.errors import MissingTable
from htk.schema.operation_types import CODES

_FORWARD, _BACKWARD = CODES["forward_compute"], CODES["backward_compute"]
_CLIP, _OPTIMIZER = CODES["clip_grads"], CODES["optimizer"]
_GATHER = CODES["params_all_gather"]
_REDUCTIONS = (CODES["grads_all_reduce"], CODES["grads_reduce_scatter"])
_SLACK_NS = 10_000  # between streams of a device
CUTTING = (_CLIP, *(CODES[f"{w}_{s}"] for w in ("forward", "backward") for s in ("send", "recv")))

Columns = dict[str, Ints]


def pipeline_rows(columns: Columns, stages: int) -> Columns:
    """Return the rows that a pipeline's schedule has, or refuse them; `launched` says when the
    host launched each."""
    order = np.lexsort((columns["launched"], columns["step"], columns["rank"]))
    rows = {name: values[order] for name, values in columns.items()}
    steps = Groups.by_keys(np.column_stack([rows["rank"], rows["step"]]))
    _refuse_other_schedules(rows, steps, stages)
    _refuse_between_micro_batches(rows, steps)
    return _with_a_clip_a_step(rows, steps)


def _of(rows: Columns, way: str, kind: str) -> Mask:
    return np.asarray(rows["type"] == CODES[f"{way}_{kind}"])


def _refuse_other_schedules(rows: Columns, steps: Groups, stages: int) -> None:
    stage = steps.max(rows["stage"])
    passes = _counts(steps, _of(rows, "forward", "compute"))
    _expect(rows, steps, _of(rows, "backward", "compute"), passes, "backwards", passes)
    for way, before in (("forward", stage > 0), ("backward", stage < stages - 1)):
        after = stage < stages - 1 if way == "forward" else stage > 0
        compute = _of(rows, way, "compute")
        for side, has in (("recv", before), ("send", after)):
            messages = _of(rows, way, side)
            _expect(rows, steps, messages, passes * has, f"rows of {way}_{side}", passes)
            own = compute & has[steps.group_ids]
            if side == "recv":
                early = rows["start_ns"][own] + _SLACK_NS < rows["end_ns"][messages]
            else:
                early = rows["start_ns"][messages] + _SLACK_NS < rows["end_ns"][own]
            if early.any():
                row = int(np.flatnonzero(own)[np.argmax(early)])
                reason = (
                    f"rank {rows['rank'][row]} has, in step {rows['step'][row]}, a {way} that "
                    + (
                        "starts before it is received"
                        if side == "recv"
                        else "is sent before its end"
                    )
                )
                raise MissingTable(f"{reason}; {_EXPECTED}")


def _counts(steps: Groups, chosen: Mask) -> Ints:
    return np.asarray(np.bincount(steps.group_ids[chosen], minlength=len(steps)), np.int64)


def _expect(
    rows: Columns, steps: Groups, chosen: Mask, expected: Ints, noun: str, passes: Ints
) -> None:
    counts = _counts(steps, chosen)
    if (counts != expected).any():
        group = int(np.argmax(counts != expected))
        rank, step = steps.keys[group].tolist()
        raise MissingTable(
            f"rank {rank} has {counts[group]} {noun} in step {step} and {passes[group]} forwards, "
            f"expected {expected[group]}; {_EXPECTED}"
        )


_EXPECTED = (
    "rows can be cut from profiles of 1F1B and GPipe with one message for each pass; for other "
    "schedules log rows with htk.capture(operations=True)"
)


def _refuse_between_micro_batches(rows: Columns, steps: Groups) -> None:
    """Gradients are reduced with the last backward; parameters gathered with the first forward."""
    launched, batch = rows["launched"], rows["micro_batch"]
    never = np.iinfo(np.int64).max
    backward = _of(rows, "backward", "compute")
    last = steps.max(np.where(backward, launched, np.iinfo(np.int64).min))[steps.group_ids]
    second = _of(rows, "forward", "compute") & (batch == 1)
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


def _with_a_clip_a_step(rows: Columns, steps: Groups) -> Columns:
    """Make one row of the reductions of the gradients' norm; what the optimizer computes before
    them is the norm, and no row."""
    of, launched = steps.group_ids, rows["launched"]
    low, never = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    clip = rows["type"] == _CLIP
    last_backward = steps.max(np.where(_of(rows, "backward", "compute"), launched, low))[of]
    small = clip & (launched < last_backward)  # some other figure of the step
    clip &= ~small
    last_clip = steps.max(np.where(clip, launched, low))[of]
    end = steps.max(np.where(clip, rows["end_ns"], low))[of]
    first_clip = steps.min(np.where(clip, launched, never))[of]
    norm = (rows["type"] == _OPTIMIZER) & (launched < last_clip)
    rows["end_ns"] = np.where(clip, end, rows["end_ns"])
    kept = ~small & ~norm & ~(clip & (launched != first_clip))
    return {name: values[kept] for name, values in rows.items()}
