"""The program of a training step: its operations on every stage, and what waits for what.

All data-parallel replicas and all steps of a job run the same program, so it is worked out once,
from the rows of one replica in one step. An operation waits for

- the computation before it on its stage,
- its send or receive of the pipeline, and that for the peer's,
- the all-gather of its parameters (the first forward of a model chunk),
- after the last backward: gradient reductions, clipping and the optimizer, in this order.

The rules are those that the study "Understanding Stragglers in Large Model Training Using What-if
Analysis" (OSDI 2025) states for 1F1B and interleaved schedules; plain data parallelism is one
stage of them. A reduction that starts before its backward has ended (buckets) waits for the same
part of that backward. Where parameters are sharded and gathered for each unit (FSDP), what waits
for what is told by what was never seen to start before, over all replicas and steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints, Mask, fill_none
from htk.base.errors import AnalysisError
from htk.base.schema.operation_types import CODES

FORWARD = CODES["forward_compute"]
BACKWARD = CODES["backward_compute"]
PIPELINE = tuple(
    CODES[f"{way}_{side}"] for way in ("forward", "backward") for side in ("send", "recv")
)
_CHAIN = (FORWARD, BACKWARD, CODES["data_loading"])  # run one after another on a worker
_GATHER = CODES["params_all_gather"]
_REDUCE = (CODES["grads_reduce_scatter"], CODES["grads_all_reduce"])
_SEPARATE = CODES["separate_grads_all_reduce"]
_EMBEDDING = CODES["embedding_grads_all_reduce"]
_CLIP = CODES["clip_grads"]
_LAST = (
    CODES["garbage_collection"],
    CODES["layernorm_grads_all_reduce"],
    _EMBEDDING,
    *_REDUCE,
    _SEPARATE,
    _CLIP,
    CODES["optimizer"],
)
_OVER_REPLICAS = (_GATHER, *_REDUCE, _SEPARATE, _CLIP)
_SLACK_NS = 50_000  # between clocks of two streams of one worker
_MOST_CHUNKS, _MOST_OPERATIONS = 256, 1_000_000  # of a step of one replica
_OVERLAPPED = 0.95  # of the last backward: a reduction that starts before overlaps it


@dataclass(frozen=True)
class Program:
    """The operations of one replica, by stage, type and start, and their dependencies."""

    stage: Ints
    type: Ints
    chunk: Ints
    micro_batch: Ints
    tail: Ints  # of each dependency: this operation has to end …
    head: Ints  # … before this one begins
    part: Floats  # … or this part of it has to be over (1: all of it)
    meeting: Ints  # of each operation: those with the same number start to transfer together (-1)
    over_replicas: Mask  # of each meeting: all data-parallel replicas take part
    by_unit: bool = False  # passes are in pieces of different size, the units of FSDP

    @property
    def operations(self) -> int:
        return len(self.type)

    @property
    def stages(self) -> int:
        return int(self.stage.max()) + 1

    @cached_property
    def peers(self) -> Ints:
        """Return for each operation the number of those that are alike: of its type, or of its
        place in the step where the type's operations are of different size."""
        if not self.by_unit:
            return self.type
        keys = self.stage * len(CODES) + self.type  # in order
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        nth = np.arange(self.operations) - np.repeat(first, np.diff(first, append=len(keys)))
        return np.asarray(self.type + len(CODES) * nth)

    @cached_property
    def order(self) -> list[int]:
        """The operations (n and on: meetings), ordered so that each follows all it waits for."""
        count = self.operations
        follows: list[list[int]] = [[] for _ in range(count + len(self.over_replicas))]
        waits = np.zeros(len(follows), np.int64)
        for tail, head in zip(self.tail.tolist(), self.head.tolist(), strict=True):
            meeting = int(self.meeting[head])
            entry = head if meeting < 0 else count + meeting
            follows[tail].append(entry)
            waits[entry] += 1
        for operation in np.flatnonzero(self.meeting >= 0).tolist():
            follows[count + int(self.meeting[operation])].append(operation)
            waits[operation] += 1
        ready = np.flatnonzero(waits == 0).tolist()
        for node in ready:  # grows while it is walked: one program has some thousand operations
            for other in follows[node]:
                waits[other] -= 1
                if waits[other] == 0:
                    ready.append(other)
        if len(ready) < len(follows):
            raise AnalysisError(
                "the operations of a step wait for each other in a circle; sends and receives of "
                "the pipeline do not pair as a 1F1B or interleaved schedule has them"
            )
        return ready


def program_of(
    stage: Ints, type_: Ints, call: Ints, chunk: Ints, micro_batch: Ints, start: Ints, end: Ints
) -> Program:
    """Work out the program from operations in canonical order.

    `call` is equal for the messages of a call that has several (-1: of none). `start` and `end`
    are [operation, step, replica]; the first replica of the first step tells the order of
    operations, all of them when a reduction that overlaps its backward can begin.
    """
    builder = _Builder(stage, type_, call, np.maximum(chunk, 0), start, end)
    builder.build()
    links = np.array(builder.links, np.float64).reshape(-1, 3)
    return Program(
        stage,
        type_,
        np.maximum(chunk, 0),
        micro_batch,
        links[:, 0].astype(np.int64),
        links[:, 1].astype(np.int64),
        links[:, 2],
        builder.meeting,
        np.array(builder.over_replicas, bool),
        builder.by_unit,
    )


class _Builder:
    """Collects the dependencies of one replica's step: loops over a few thousand operations."""

    def __init__(
        self, stage: Ints, type_: Ints, call: Ints, chunk: Ints, start: Ints, end: Ints
    ) -> None:
        self.stage, self.type, self.call, self.chunk = stage, type_, call, chunk
        self.starts, self.ends = start, end
        self.start = start[:, 0, 0]
        self.end = end[:, 0, 0]
        self.replicas = start.shape[2]
        self.stages = int(stage.max()) + 1
        self.chunks = int(chunk.max()) + 1
        if self.chunks > _MOST_CHUNKS or len(stage) > _MOST_OPERATIONS:
            raise AnalysisError(
                f"a step of one replica has {len(stage):,} operations in {self.chunks:,} model "
                f"chunks, expected at most {_MOST_OPERATIONS:,} in {_MOST_CHUNKS:,}; are the rows "
                "damaged, or steps not told apart?"
            )
        self.links: list[tuple[int, int, float]] = []
        self.meeting = fill_none(len(type_))
        self.over_replicas: list[bool] = []
        self.by_unit = False
        # Sends and receives that carry data, in order, for each stage and type.
        self.carrying: dict[tuple[int, int], list[int]] = {}

    def build(self) -> None:
        for stage in range(self.stages):
            self._link_worker(stage)
        self._batched_calls()
        self._pair_pipeline()
        self._meet_over_replicas()
        self._meet_embedding()

    def _list_rows(self, stage: int, types: Iterable[int]) -> list[int]:
        """Return the operations of these types on a stage, by start."""
        rows = np.flatnonzero((self.stage == stage) & np.isin(self.type, list(types)))
        return [int(r) for r in rows[order_by(self.start[rows], rows, self.type[rows])]]

    def _chain_rows(self, rows: list[int]) -> None:
        for before, after in pairwise(rows):
            self.links.append((before, after, 1.0))

    def _link_worker(self, stage: int) -> None:
        """Collect the dependencies within one stage."""
        compute = self._list_rows(stage, _CHAIN)
        self._chain_rows(compute)
        for code in PIPELINE:
            rows = self._list_rows(stage, [code])
            self._chain_rows(rows)
            self._match_compute(stage, code, rows)
        self._first_backward(stage, compute)
        self._chain_rows(self._list_rows(stage, (_GATHER, *_REDUCE)))
        if self._is_sharded(stage, compute):
            self.by_unit = True
            self._link_units(stage, compute)
        else:
            self._link_gathers(stage)
        self._finish(stage, compute)

    def _match_compute(self, stage: int, code: int, rows: list[int]) -> None:
        """Tie each send and receive to the computation that makes or needs what it carries."""
        forward = code in PIPELINE[:2]
        sends = code in PIPELINE[::2]
        compute = self._list_rows(stage, [FORWARD if forward else BACKWARD])
        if not compute or not rows:
            return
        if sends:  # some loggers record sends of nothing before the first result
            first_end = min(self.end[c] for c in compute)
            timely = [r for r in rows if self.end[r] >= first_end - _SLACK_NS]
        else:  # and receives of nothing after the last
            last_start = max(self.start[c] for c in compute)
            timely = [r for r in rows if self.start[r] <= last_start + _SLACK_NS]
        needing = [
            c for c in compute if self._is_carried(stage, int(self.chunk[c]), forward, sends)
        ]
        matched = self._match_rows(timely, compute, needing, sends, stage)
        carrying = self.carrying.setdefault((stage, code), [])
        position = {c: k for k, c in enumerate(compute)}
        loaded = set(needing)
        for row, computation in matched:
            if computation in loaded:
                carrying.append(row)
            if sends:
                self.links.append((computation, row, 1.0))
                continue
            self.links.append((row, computation, 1.0))
            if position[computation]:
                self.links.append((compute[position[computation] - 1], row, 1.0))

    def _match_rows(
        self, rows: list[int], compute: list[int], needing: list[int], sends: bool, stage: int
    ) -> list[tuple[int, int]]:
        if len(rows) == len(compute):
            return list(zip(rows, compute, strict=True))
        if len(rows) == len(needing):
            return list(zip(rows, needing, strict=True))
        if not sends and len(rows) + 1 == len(compute):  # the first receive carries nothing
            return list(zip(rows, compute[1:], strict=True))
        if not needing:
            return []
        raise AnalysisError(
            f"stage {stage} logged {len(rows)} {'sends' if sends else 'receives'} for "
            f"{len(compute)} computations; a 1F1B or interleaved schedule has one for each"
        )

    def _is_carried(self, stage: int, chunk: int, forward: bool, sends: bool) -> bool:
        """Return whether a computation of this chunk has a neighbour on that side."""
        position = chunk * self.stages + stage
        return position < self.chunks * self.stages - 1 if forward == sends else position > 0

    def _first_backward(self, stage: int, compute: list[int]) -> None:
        """Let the first backward transfer wait for the last but one warm-up forward."""
        passes = [c for c in compute if self.type[c] in (FORWARD, BACKWARD)]
        first = next((k for k, c in enumerate(passes) if self.type[c] == BACKWARD), 0)
        if first < 2:
            return
        for code in PIPELINE[2:]:
            rows = self._list_rows(stage, [code])
            if rows:
                self.links.append((passes[first - 2], rows[0], 1.0))

    def _link_gathers(self, stage: int) -> None:
        """Let the first forward of a model chunk wait for the last gather of its parameters."""
        forwards = self._list_rows(stage, [FORWARD])
        for chunk in np.unique(self.chunk).tolist():
            gathers = [g for g in self._list_rows(stage, [_GATHER]) if self.chunk[g] == chunk]
            users = [f for f in forwards if self.chunk[f] == chunk]
            if gathers and users:
                self.links.append((gathers[-1], users[0], 1.0))

    def _is_sharded(self, stage: int, compute: list[int]) -> bool:
        """Return whether parameters of one chunk are gathered again and again during its passes."""
        gathers = self._list_rows(stage, [_GATHER])
        late = bool(gathers and compute) and self.start[gathers[-1]] > self.start[compute[0]]
        return late and len(gathers) > len(np.unique(self.chunk[gathers]))

    def _link_units(self, stage: int, compute: list[int]) -> None:
        """Let gathers and reductions of units wait for the computation that they never start
        before, and a computation for a gather before whose end it never starts, in any step of any
        replica."""
        for row in self._list_rows(stage, (_GATHER, *_REDUCE)):
            before, after = self._find_around(row, compute)
            if before is not None:
                self.links.append((before, row, 1.0))
            if after is not None and self.type[row] == _GATHER:
                self.links.append((row, after, 1.0))

    def _find_around(self, row: int, others: list[int]) -> tuple[int | None, int | None]:
        """Return the last of some operations that this one never started before, and the first one
        after that which never started before its end, over all steps and replicas."""
        before, after, last = None, None, -1
        for k in reversed(range(len(others))):  # the first step rules most of them out at once
            if self._never_earlier(row, others[k]):
                before, last = others[k], k
                break
        for k in range(last + 1, len(others)):
            if self._never_earlier(others[k], row):
                after = others[k]
                break
        return before, after

    def _never_earlier(self, later: int, earlier: int) -> bool:
        """Return whether an operation never starts before another one's end."""
        if self.start[later] - self.end[earlier] < -_SLACK_NS:
            return False
        return bool((self.starts[later] - self.ends[earlier]).min() >= -_SLACK_NS)

    def _batched_calls(self) -> None:
        """Let a stage wait for calls of several messages (`batch_isend_irecv`); where there are
        any, calls of one message are treated alike."""
        if (self.call < 0).all():
            return
        for stage in range(self.stages):
            compute = self._list_rows(stage, _CHAIN)
            calls: dict[int, list[int]] = {}
            for row in self._list_rows(stage, PIPELINE):
                calls.setdefault(
                    int(self.call[row]) if self.call[row] >= 0 else -1 - row, []
                ).append(row)
                before, after = self._find_around(row, compute)
                self.links += [(before, row, 1.0)] if before is not None else []
                self.links += [(row, after, 1.0)] if after is not None else []
            for earlier, later in pairwise(calls.values()):
                if all(self._never_earlier(later[0], row) for row in earlier):
                    self.links += [(a, b, 1.0) for a in earlier for b in later]

    def _finish(self, stage: int, compute: list[int]) -> None:
        """Chain reductions (unless overlapped), clipping and optimizer after the last backward."""
        last = max(compute, key=lambda row: int(self.end[row]), default=None)
        if last is None:
            return
        reductions = self._list_rows(stage, _REDUCE)
        early = self.start[last] + _OVERLAPPED * (self.end[last] - self.start[last])
        overlapped = bool(self._list_rows(stage, [_SEPARATE])) or any(
            self.start[r] < early for r in reductions
        )
        if overlapped and not self._is_sharded(stage, compute):
            self._link_reductions(stage, reductions)
        before = [last] + ([reductions[-1]] if overlapped and reductions else [])
        for code in _LAST:
            if code in _REDUCE and overlapped:
                continue
            for row in self._list_rows(stage, [code]):
                self.links.extend((b, row, 1.0) for b in before)
                before = [row]

    def _link_reductions(self, stage: int, reductions: list[int]) -> None:
        """Let a chunk's first reduction wait for its last backward, or for a part of that."""
        backward = self._list_rows(stage, [BACKWARD])
        for chunk in np.unique(self.chunk).tolist():
            own = [r for r in reductions if self.chunk[r] == chunk]
            last = next((b for b in reversed(backward) if self.chunk[b] == chunk), None)
            if last is None:
                continue
            for row in own:
                if row == own[0] or self.start[row] < self.end[last]:
                    self.links.append((last, row, self._find_part(last, row)))

    def _find_part(self, backward: int, reduction: int) -> float:
        """Return the part of a backward that is over when a reduction starts.

        It is the least over replicas and steps: elsewhere an earlier reduction may have been late.
        """
        length = np.maximum(self.ends[backward] - self.starts[backward], 1)
        over = (self.starts[reduction] - self.starts[backward]) / length
        return float(np.clip(over.min(), 0.0, 1.0))

    def _pair_pipeline(self) -> None:
        """Let the k-th send of a stage meet the k-th receive of its neighbour."""
        for send, recv, step in ((PIPELINE[0], PIPELINE[1], 1), (PIPELINE[2], PIPELINE[3], -1)):
            for stage in range(self.stages):
                sends = self.carrying.get((stage, send), [])
                recvs = self.carrying.get(((stage + step) % self.stages, recv), [])
                if len(sends) != len(recvs):
                    raise AnalysisError(
                        f"stage {stage} sends {len(sends)} times and its neighbour receives "
                        f"{len(recvs)} times in a step; rows of some operations are missing"
                    )
                for pair in zip(sends, recvs, strict=True):
                    self._note_meeting(list(pair), over_replicas=False)
        for row in np.flatnonzero(np.isin(self.type, PIPELINE) & (self.meeting < 0)).tolist():
            self._note_meeting([row], over_replicas=False)

    def _meet_over_replicas(self) -> None:
        clips = np.flatnonzero(self.type == _CLIP).tolist()
        if clips:  # the gradients' norm is one number of the whole model
            self._note_meeting(clips, over_replicas=self.replicas > 1)
        if self.replicas > 1:
            for row in np.flatnonzero(np.isin(self.type, _OVER_REPLICAS)).tolist():
                if self.meeting[row] < 0:
                    self._note_meeting([row], over_replicas=True)

    def _meet_embedding(self) -> None:
        """Let the first and the last stage meet for the embedding that they share."""
        rows = np.flatnonzero(self.type == _EMBEDDING).tolist()
        if rows:
            self._note_meeting(rows, over_replicas=False)

    def _note_meeting(self, rows: list[int], *, over_replicas: bool) -> None:
        self.meeting[rows] = len(self.over_replicas)
        self.over_replicas.append(over_replicas)
