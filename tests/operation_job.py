"""Simulated jobs that log operation-level rows, with planted stragglers: the truth of tests.

Written from the schedules' definitions, event by event, and knows nothing of htk's replay: a stage
runs its forwards and backwards in the order of 1F1B (or Megatron's interleaved schedule), waits
for what its neighbour sends, then reduces with its replicas.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.schema import JOB_OPERATIONS
from tests.batched_calls import Item, end_of, items_of, name_of

MS = 1_000_000


@dataclass
class JobPlan:
    """A job; durations in ms."""

    replicas: int = 4
    stages: int = 4
    chunks: int = 1
    micro_batches: int = 8
    steps: int = 6
    forward: float = 20.0
    backward: float = 40.0
    send: float = 0.5
    gather: float = 8.0
    reduce: float = 15.0
    optimizer: float = 6.0
    noise: float = 0.0  # relative, of each computation
    seed: int = 0
    worker: dict[tuple[int, int], float] = field(default_factory=dict)  # (replica, stage) -> factor
    stage: dict[int, float] = field(default_factory=dict)  # stage -> factor
    lengths: float = 0.0  # spread of micro-batches' lengths
    reduce_slow: dict[int, float] = field(default_factory=dict)  # step -> factor of reductions
    late_ms: float = 0.0  # of the first forward of a step, on replica 0
    first_step: int = 10
    batched: bool = False  # the messages of a call are one kernel, which the next pass waits for


def order_of(plan: JobPlan, stage: int) -> list[tuple[str, int, int]]:
    """(pass, chunk, micro-batch) in the order in which a stage runs them."""
    total = plan.micro_batches * plan.chunks
    if plan.chunks == 1:
        warm = min(plan.stages - stage - 1, total)
    else:
        warm = min((plan.stages - stage - 1) * 2 + (plan.chunks - 1) * plan.stages, total)
    ahead = [_virtual(plan, k, forward=True) for k in range(total)]
    back = [_virtual(plan, k, forward=False) for k in range(total)]
    order = [("forward", *ahead[k]) for k in range(warm)]
    for k in range(warm, total):
        order += [("forward", *ahead[k]), ("backward", *back[k - warm])]
    return order + [("backward", *b) for b in back[total - warm :]]


def _virtual(plan: JobPlan, k: int, *, forward: bool) -> tuple[int, int]:
    group, within = divmod(k, plan.stages * plan.chunks)
    chunk, batch = divmod(within, plan.stages)
    return (chunk if forward else plan.chunks - 1 - chunk), group * plan.stages + batch


def simulate(plan: JobPlan) -> pa.Table:
    """The rows that the job logs, in no order of time."""
    random = np.random.default_rng(plan.seed)
    rows: list[dict[str, Any]] = []
    began = 5_000 * MS
    for step in range(plan.first_step, plan.first_step + plan.steps):
        began = _step(plan, step, began, random, rows) + 3 * MS
    random.shuffle(rows)
    columns = {name: [row.get(name) for row in rows] for name in JOB_OPERATIONS.names}
    return pa.table(
        [
            pa.array(columns[f.name]).cast(f.type)
            if f.name != "type"
            else pa.array(columns[f.name]).dictionary_encode().cast(f.type)
            for f in JOB_OPERATIONS
        ],
        schema=JOB_OPERATIONS,
    )


def step_times(table: pa.Table) -> np.ndarray:
    """From first start to last end of each step, in ns."""
    step = table["step"].to_numpy()
    start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    return np.array([end[step == s].max() - start[step == s].min() for s in np.unique(step)])


def _step(plan: JobPlan, step: int, began: int, random: Any, rows: list[dict[str, Any]]) -> int:
    pipelines = []
    shape = (plan.replicas, plan.micro_batches)
    lengths = (
        1 + plan.lengths * (random.pareto(2.5, shape) - 0.5) if plan.lengths else np.ones(shape)
    )
    lengths = np.clip(lengths, 0.3, 4.0)
    for replica in range(plan.replicas):
        pipelines.append(_Pipeline(plan, step, replica, began, lengths[replica], random))
        pipelines[-1].run()
    slow = plan.reduce_slow.get(step, 1.0)
    meet = {s: max(p.free[s] for p in pipelines) for s in range(plan.stages)}
    clip = 0
    for p in pipelines:
        for s in range(plan.stages):
            p.add("grads_reduce_scatter", s, p.free[s], meet[s] + _ns(plan.reduce * slow))
            clip = max(clip, meet[s] + _ns(plan.reduce * slow))
    for p in pipelines:
        for s in range(plan.stages):
            p.add("clip_grads", s, meet[s] + _ns(plan.reduce * slow), clip + _ns(1))
            p.add("optimizer", s, clip + _ns(1), clip + _ns(1 + plan.optimizer))
        rows += p.rows
    return clip + _ns(1 + plan.optimizer)


def _ns(ms: float) -> int:
    return round(ms * MS)


class _Pipeline:
    """One replica's pipeline in one step."""

    def __init__(
        self, plan: JobPlan, step: int, replica: int, began: int, lengths: Any, random: Any
    ) -> None:
        self.plan, self.step, self.replica, self.began = plan, step, replica, began
        self.lengths, self.random = lengths, random
        self.rows: list[dict[str, Any]] = []
        self.free = [began] * plan.stages
        self.sent: dict[tuple[str, int, int], int] = {}  # (pass, position, batch): send's start
        self.posted: dict[tuple[int, str], int] = {}

    def add(
        self, type_: str, stage: int, start: int, end: int, chunk: int | None = 0, batch: int = -1
    ) -> None:
        self.rows.append(
            {
                "rank": stage * self.plan.replicas + self.replica,
                "cycle": 0,
                "dp_rank": self.replica,
                "stage": stage,
                "chunk": chunk,
                "micro_batch": None if batch < 0 else batch,
                "step": self.step,
                "index_in_type": None,
                "type": type_,
                "start_ns": start,
                "end_ns": end,
            }
        )

    def run(self) -> None:
        plan = self.plan
        if plan.replicas > 1:
            for stage in range(plan.stages):
                gathered = self.began + _ns(plan.gather)
                self.add("params_all_gather", stage, self.began, gathered)
                self.free[stage] = gathered
        orders = [order_of(plan, s) for s in range(plan.stages)]
        if plan.batched:
            shape = plan.stages, plan.chunks
            self._run_calls([items_of(order, s, *shape) for s, order in enumerate(orders)])
            return
        done = [0] * plan.stages
        while any(done[s] < len(orders[s]) for s in range(plan.stages)):
            before = list(done)
            for s in range(plan.stages):
                while done[s] < len(orders[s]) and self._try(s, *orders[s][done[s]]):
                    done[s] += 1
            assert done != before, "the schedule is stuck"

    def _try(self, stage: int, way: str, chunk: int, batch: int) -> bool:
        plan = self.plan
        position, last = chunk * plan.stages + stage, plan.chunks * plan.stages - 1
        step = 1 if way == "forward" else -1
        source = position - step
        start = self.free[stage]
        if 0 <= source <= last:
            if (way, source, batch) not in self.sent:
                return False
            sent = self.sent[way, source, batch]
            posted = self.posted.get((stage, way), self.began)
            arrived = max(sent, posted) + _ns(plan.send)
            self.add(f"{way}_recv", stage, posted, arrived, chunk)
            self.add(f"{way}_send", source % plan.stages, sent, arrived, source // plan.stages)
            start = max(start, arrived)
        elif way == "forward" and self.replica == 0 and batch == 0 and plan.late_ms:
            start += _ns(plan.late_ms * self.random.uniform(0.5, 1.5))
        end = start + self._duration(stage, way, batch)
        self.add(f"{way}_compute", stage, start, end, chunk, batch)
        self.free[stage] = self.posted[stage, way] = end
        self.sent[way, position, batch] = end
        return True

    def _run_calls(self, items: list[list[Item]]) -> None:
        """A message takes its time from when both calls have begun, a call ends with its last."""
        stages, cost = self.plan.stages, _ns(self.plan.send)
        began: dict[tuple[tuple[str, int, int], int], int] = {}  # (message, stage): its call's
        todo = [list(reversed(own)) for own in items]
        while any(todo):
            left = sum(map(len, todo))
            for stage, own in enumerate(todo):
                while own and not isinstance(own[-1], list):
                    self._pass(stage, *own.pop())  # type: ignore[misc]
                for message in own[-1] if own else ():
                    began.setdefault((end_of(message, stage, stages), stage), self.free[stage])
            for stage, own in enumerate(todo):
                call = {m: end_of(m, stage, stages) for m in (own[-1] if own else ())}
                both = [[t for (e, _), t in began.items() if e == end] for end in call.values()]
                if not call or any(len(times) < 2 for times in both):
                    continue
                start, self.free[stage] = self.free[stage], max(map(max, both)) + cost
                chunk = next(iter(call))[1] if len(call) == 1 else None
                self.add(name_of(list(call)), stage, start, self.free[stage], chunk)
                own.pop()
            assert sum(map(len, todo)) < left, "the schedule is stuck"

    def _pass(self, stage: int, way: str, chunk: int, batch: int) -> None:
        start = self.free[stage]
        self.free[stage] = start + self._duration(stage, way, batch)
        self.add(f"{way}_compute", stage, start, self.free[stage], chunk, batch)

    def _duration(self, stage: int, way: str, batch: int) -> int:
        plan = self.plan
        base = plan.forward if way == "forward" else plan.backward
        base *= plan.worker.get((self.replica, stage), 1.0) * plan.stage.get(stage, 1.0)
        base *= float(self.lengths[batch]) * (1 + plan.noise * self.random.standard_normal())
        return max(_ns(base / plan.chunks), 1000)
