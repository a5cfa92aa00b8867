"""A simulated job whose products and all-reduces of tensor parallelism are cut into pieces.

Each piece is a kernel of its own: computed, recorded by an event, sent on another stream as soon as
it is done, waited for where the next product needs it. So runs what `--split tensor` predicts.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count as numbers
from typing import Any

from bench.scorecard.jobs import Change, Job
from htk.recording.simulate.groups import process_groups
from htk.recording.simulate.instructions import (
    COMPUTE,
    CONTEXT,
    Activity,
    Do,
    Range,
    RankProgram,
    StreamEvent,
)
from htk.recording.simulate.times import Times

_EVENT_NS = 1_000  # of the host, to record an event or to let a stream wait for it

Item = tuple[Do, int, Any]


def in_pieces(job: Job, count: int) -> Change:
    """Return the change of a job's program into one of so many pieces."""
    return lambda program: _Cutter(job, program, count).cut()


class _Cutter:
    def __init__(self, job: Job, program: RankProgram, count: int) -> None:
        self._program, self._count = program, count
        self._times, self._group = Times(job), process_groups(job)["tensor"]
        events = (w[0].number for d, w in zip(program.do, program.what, strict=True)
                  if d is Do.RECORD)  # fmt: skip
        self._event = numbers(max(events, default=0) + 1)
        self._instead: dict[int, list[Item]] = {}

    def cut(self) -> RankProgram:
        launches = [row for row, do in enumerate(self._program.do) if do is Do.LAUNCH]
        for order, row in enumerate(launches[1:-1], 1):
            sent = self._program.what[row][0].collective
            if sent is not None and sent.group == "tensor":
                self._cut_one(launches[order - 1], row, launches[order + 1])
        new = replace(self._program, do=[], cost=[], what=[])
        for row, item in enumerate(self._items()):
            for do, cost, what in self._instead.get(row, [item]):
                new.add(do, cost, what)
        return new

    def _items(self) -> Iterator[Item]:
        program = self._program
        return zip(program.do, program.cost, program.what, strict=True)

    def _cut_one(self, before: int, row: int, after: int) -> None:
        """Cut an all-reduce, and the launches before and after it where they are products."""
        thread = self._program.what[row][1]
        ready, sent = ([next(self._event) for _ in range(self._count)] for _ in range(2))
        product = self._piece(before)
        if product is not None:
            self._instead[before] = [
                item
                for event in ready
                for item in (self._launch(before, product), _record(event, COMPUTE, thread))
            ]
            waits = ready
        else:  # all of it is there at once
            waits = ready[:1] * self._count
        transfer = self._sent(row)
        self._instead[row] = [] if product is not None else [_record(ready[0], COMPUTE, thread)]
        for wait, event in zip(waits, sent, strict=True):
            self._instead[row] += [
                _wait(wait, COMPUTE, CONTEXT, thread),
                self._launch(row, transfer),
                _record(event, CONTEXT, thread),
            ]
        product = self._piece(after)
        if product is None:
            self._instead[row].append(_wait(sent[-1], CONTEXT, COMPUTE, thread))
            return
        self._instead[after] = [
            item
            for event in sent
            for item in (
                _wait(event, CONTEXT, COMPUTE, thread), self._launch(after, product)
            )
        ]  # fmt: skip

    def _launch(self, row: int, activity: Activity) -> Item:
        return Do.LAUNCH, self._program.cost[row], (activity, self._program.what[row][1])

    def _piece(self, row: int) -> Activity | None:
        """Return a piece of a product by its rows; None: it is none."""
        opened = self._program.what[row - 1]
        if not isinstance(opened, Range) or opened.name != "aten::mm" or opened.inputs is None:
            return None
        uncut: Activity = self._program.what[row][0]
        (m, k), (_, n) = json.loads(opened.inputs.dims)
        product = self._times.gemm(m // self._count, n, k, "")
        return replace(
            uncut, ns=product.ns, grid=product.grid, block=product.block,
            flops=uncut.flops // self._count,
        )  # fmt: skip

    def _sent(self, row: int) -> Activity:
        uncut: Activity = self._program.what[row][0]
        collective, group = uncut.collective, self._group
        assert collective is not None
        wire = collective.wire // self._count
        transfer = self._times.collective(
            "all_reduce", wire, group.size, group.nodes, group.per_node
        )
        part = replace(
            collective,
            in_elements=collective.in_elements // self._count,
            out_elements=collective.out_elements // self._count,
            wire=wire,
            transfer_ns=transfer.ns,
            synchronous=False,
        )
        return replace(uncut, stream=CONTEXT, ns=transfer.ns, collective=part)


def _record(event: int, stream: int, thread: int) -> Item:
    return Do.RECORD, _EVENT_NS, (StreamEvent(event, stream), thread)


def _wait(event: int, of: int, stream: int, thread: int) -> Item:
    return Do.WAIT, _EVENT_NS, (StreamEvent(event, of), stream, thread)
