"""The order in which a stage runs micro-batches, and the messages between its passes.

1F1B (Narayanan et al., 2019): a stage runs as many forwards ahead as stages follow it, then a
forward and a backward in turn. Interleaved (Narayanan et al., 2021): each stage holds several
chunks of layers, micro-batches come in groups as large as the pipeline, and more forwards run
ahead. What a call sends and receives is Megatron's: in 1F1B what a pass gives goes with what the
next one takes from the same neighbour; interleaved, all messages of a forward and a backward go
together.
"""

from typing import Literal, NamedTuple

Way = Literal["forward", "backward"]
FORWARD: Way = "forward"
BACKWARD: Way = "backward"


class PipelinePass(NamedTuple):
    """A chunk's forward or backward pass of a micro-batch."""

    way: Way
    chunk: int
    micro_batch: int


class PipelineMessage(NamedTuple):
    """What a pass gives to a neighbour or takes from it."""

    kind: Literal["send", "recv"]
    shift: int  # 1: the next stage; -1: the one before
    of: PipelinePass


Call = list[PipelineMessage]


class PipelineSchedule(NamedTuple):
    """Where a stage stands in its pipeline."""

    stage: int
    stages: int
    chunks: int
    micro_batches: int

    @property
    def ahead(self) -> int:
        """The number of forwards before the first backward, the one right before it aside."""
        after = self.stages - self.stage - 1
        total = self.micro_batches * self.chunks
        if self.chunks == 1:
            return min(after, total)
        return min(2 * after + (self.chunks - 1) * self.stages, total)

    def passes(self) -> list[PipelinePass]:
        """Return the passes of a step in order."""
        forwards = self._list_forwards()
        backwards = self._list_backwards()
        ahead = self.ahead
        order = forwards[:ahead]
        for forward, backward in zip(forwards[ahead:], backwards, strict=False):
            order += [forward, backward]
        return order + backwards[len(forwards) - ahead :]

    def items(self) -> list[PipelinePass | Call]:
        """Return passes, and between them the calls that send and receive, in order."""
        items = self._in_turn() if self.chunks == 1 else self._merge_passes()
        kept = [self._keep_possible(item) if isinstance(item, list) else item for item in items]
        return [item for item in kept if item]

    def _list_forwards(self) -> list[PipelinePass]:
        return [
            self._find_nth(number, FORWARD) for number in range(self.micro_batches * self.chunks)
        ]

    def _list_backwards(self) -> list[PipelinePass]:
        return [
            self._find_nth(number, BACKWARD) for number in range(self.micro_batches * self.chunks)
        ]

    def _find_nth(self, number: int, way: Way) -> PipelinePass:
        """Return the n-th pass of one way: chunks take turns, a group of micro-batches each."""
        group, within = divmod(number, self.stages * self.chunks)
        turn, batch = divmod(within, self.stages)
        if self.chunks == 1:
            return PipelinePass(way, 0, number)
        chunk = turn if way == FORWARD else self.chunks - 1 - turn
        return PipelinePass(way, chunk, group * self.stages + batch)

    def _in_turn(self) -> list[PipelinePass | Call]:
        items: list[PipelinePass | Call] = []
        order = self.passes()
        for position, current in enumerate(order):
            before = order[position - 1] if position else None
            after = order[position + 1] if position + 1 < len(order) else None
            if before is None or before.way == current.way:
                items.append([_receive_before(current)])
            items.append(current)
            call = [_send_after(current)]
            if after is not None and after.way != current.way:  # both are of one neighbour
                call.append(_receive_before(after))
            items.append(call)
        return items

    def _merge_passes(self) -> list[PipelinePass | Call]:
        forwards = self._list_forwards()
        backwards = self._list_backwards()
        items: list[PipelinePass | Call] = [[_receive_before(forwards[0])]]
        total = len(forwards)
        ahead = min(self.ahead, total - 1)  # the last of them comes with the first backward
        for position in range(total + ahead):
            call: Call = []
            back = position - ahead
            if position < total:
                items.append(forwards[position])
                call.append(_send_after(forwards[position]))
            if back >= 0:
                items.append(backwards[back])
                call.append(_send_after(backwards[back]))
            if position + 1 < total:
                call.append(_receive_before(forwards[position + 1]))
            if 0 <= back + 1 < total:
                call.append(_receive_before(backwards[back + 1]))
            items.append(call)
        return items

    def _keep_possible(self, call: Call) -> Call:
        """Return the messages that have another end: the model's first input comes from nowhere."""
        last = self.stages * self.chunks - 1
        return [
            message
            for message in call
            if 0 <= message.of.chunk * self.stages + self.stage + message.shift <= last
        ]


def _send_after(by: PipelinePass) -> PipelineMessage:
    shift = 1 if by.way == FORWARD else -1
    return PipelineMessage("send", shift, by)


def _receive_before(by: PipelinePass) -> PipelineMessage:
    shift = -1 if by.way == FORWARD else 1
    return PipelineMessage("recv", shift, by)
