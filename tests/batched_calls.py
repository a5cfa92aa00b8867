"""What each stage of a pipeline runs where messages are batched, as Megatron does by default.

A call sends and receives several messages in one kernel (`batch_isend_irecv`), after all that the
stage ran before it and before all that it runs next: a message is (its type, chunk, micro-batch),
of the pass on this stage that makes or needs it.
"""

from typing import Literal

Pass = tuple[Literal["forward", "backward"], int, int]
Message = tuple[str, int, int]
Item = Pass | list[Message]


def items_of(passes: list[Pass], stage: int, stages: int, chunks: int) -> list[Item]:
    """Passes and calls of a stage in order: 1F1B, or interleaved without overlap."""
    items: list[Item] = []
    order = one_by_one if chunks == 1 else together
    for entry in order(passes, stage, stages, chunks):
        if entry or not isinstance(entry, list):
            items.append(entry)
    return items


def has(message: Message, stage: int, stages: int, chunks: int) -> bool:
    """Return whether a pass has a neighbour on that side."""
    position, last = message[1] * stages + stage, chunks * stages - 1
    onward = message[0] in ("forward_send", "backward_recv")
    return position < last if onward else position > 0


def one_by_one(passes: list[Pass], stage: int, stages: int, chunks: int) -> list[Item]:
    """1F1B: what a pass sends goes with what the next one receives from the same neighbour."""
    items: list[Item] = []
    for k, current in enumerate(passes):
        before, after = (passes[k + d] if 0 <= k + d < len(passes) else None for d in (-1, 1))
        send, recv = ((f"{current[0]}_{side}", *current[1:]) for side in ("send", "recv"))
        if before is None or before[0] == current[0]:
            items.append([recv])
        items.append(current)
        call = [send]
        if after is not None and after[0] != current[0]:  # both are of the same neighbour
            call.append((f"{after[0]}_recv", *after[1:]))
        items.append(call)
    keep = [
        [m for m in item if has(m, stage, stages, chunks)] if isinstance(item, list) else item
        for item in items
    ]
    return keep


def together(passes: list[Pass], stage: int, stages: int, chunks: int) -> list[Item]:
    """Interleaved: all messages of a forward and a backward are one call, with both neighbours."""
    forwards = [p for p in passes if p[0] == "forward"]
    backwards = [p for p in passes if p[0] == "backward"]
    warm = next(k for k, p in enumerate(passes) if p[0] == "backward") - 1
    items: list[Item] = [[("forward_recv", *forwards[0][1:])]]
    total = len(forwards)
    for tick in range(total + warm):
        call: list[Message] = []
        back = tick - warm
        if tick < total:
            items.append(forwards[tick])
        if back >= 0:
            items.append(backwards[back])
            call.append(("backward_send", *backwards[back][1:]))
        if tick + 1 < total:
            call.append(("forward_recv", *forwards[tick + 1][1:]))
        if tick < total:
            call.append(("forward_send", *forwards[tick][1:]))
        if 0 <= back + 1 < total:
            call.append(("backward_recv", *backwards[back + 1][1:]))
        items.append(call)
    return [
        [m for m in item if has(m, stage, stages, chunks)] if isinstance(item, list) else item
        for item in items
    ]


def end_of(message: Message, stage: int, stages: int) -> tuple[str, int, int]:
    """Return what both ends of a message call it: its way, the sender's position, micro-batch."""
    way, side = message[0].split("_")
    position = message[1] * stages + stage
    back = 1 if way == "forward" else -1
    return way, position if side == "send" else position - back, message[2]


def name_of(call: list[Message]) -> str:
    """Return what Megatron's timers call it: forward_send_backward_recv."""
    types, parts = {message[0] for message in call}, []
    for side in ("send", "recv"):
        ways = [way for way in ("forward", "backward") if f"{way}_{side}" in types]
        parts += [*ways, side] if ways else []
    return "_".join(parts)
