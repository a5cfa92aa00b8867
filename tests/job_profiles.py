"""Writes the rows of a simulated job as the Kineto files that its ranks would have recorded.

A forward, backward or optimizer is two kernels, each launched from an operator: the backward's on
the autograd thread. A message or collective is a record_param_comms, its launch and its kernel. The
host launches right before the GPU starts.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from htk.base.schema.operation_types import CALLS
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

Row = dict[str, Any]
COLLECTIVES = {
    "params_all_gather": ("_allgather_base", "AllGather", 1 << 20),
    "grads_reduce_scatter": ("_reduce_scatter_base", "ReduceScatter", 1 << 20),
    "grads_all_reduce": ("allreduce", "AllReduce_Sum_f32", 1 << 20),
    "clip_grads": ("allreduce", "AllReduce_Sum_f32", 1),
}
STREAMS = {"forward_send": 20, "forward_recv": 21, "backward_send": 22, "backward_recv": 23}
ORDER = ("backward_send", "forward_recv", "forward_send", "backward_recv")  # of a call
LEAD_US = 8.0  # of a launch before its kernel


class JobProfiles:
    """Files of a job; `change` may rewrite the arguments of a message or collective. `batched`
    messages are made by calls that end in one kernel."""

    def __init__(
        self,
        rows: pa.Table,
        change: Callable[[Row, Row], Row] = lambda row, args: args,
        *,
        batched: bool = False,
    ) -> None:
        self.rows: list[Row] = rows.to_pylist()
        self.batched = batched
        self.change = change
        self.rank_of = {(r["dp_rank"], r["stage"]): r["rank"] for r in self.rows}
        self.replicas = 1 + max(r["dp_rank"] for r in self.rows)
        self.stages = 1 + max(r["stage"] for r in self.rows)

    def write(self, folder: Path, *, without: tuple[int, ...] = ()) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for rank in sorted(set(self.rank_of.values()) - set(without)):
            header = of_rank(rank, len(self.rank_of))
            write(folder / f"rank{rank}.json", *self._events(rank), **header)
        return folder

    def _events(self, rank: int) -> list[Event]:
        own = [row for row in self.rows if row["rank"] == rank]
        own.sort(key=lambda r: (r["start_ns"], r["type"].endswith("_compute"), r["type"]))
        events: list[Event] = []
        correlation, host, ends = count(1), 0.0, {}
        for row in own:
            call = max(host, row["start_ns"] / 1e3 - LEAD_US)
            assert call + 1 <= row["start_ns"] / 1e3, "the host is late"
            first, last = ends.get(row["step"], (call, call))
            ends[row["step"]] = min(first, call), max(last, call + 3)
            is_batched = self.batched and row["type"].endswith(("_send", "_recv"))
            to_events = self._batch if is_batched else self._activity
            events += to_events(row, call, correlation)
            host = call + 1.5
        events += [step(k, first - 1, last - first + 2) for k, (first, last) in ends.items()]
        return events

    def _batch(self, row: Row, call: float, correlation: Any) -> list[Event]:
        """A call of one or several messages: a record for each, then one kernel without arguments.

        The range that closes the call lasts until its results are let go.
        """
        start, length = row["start_ns"] / 1e3, (row["end_ns"] - row["start_ns"]) / 1e3
        number, events = next(correlation), []
        messages = sorted(CALLS.get(row["type"], (row["type"],)), key=ORDER.index)
        for k, type_ in enumerate(messages):
            message = row | {"type": type_}
            args = self.change(message, self._communication(message)[1])
            events.append(op("record_param_comms", call + 0.15 * k, 0.1, **args))
        events.append(span("nccl:coalesced", call + 0.7, 5000.0))
        events.append(launch(number, call + 0.8, 0.2))
        name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        return [*events, kernel(name, start, length, number, 20)]

    def _activity(self, row: Row, call: float, correlation: Any) -> list[Event]:
        if row["type"].endswith("_compute") or row["type"] == "optimizer":
            return self._computation(row, call, correlation)
        start, length = row["start_ns"] / 1e3, (row["end_ns"] - row["start_ns"]) / 1e3
        name, args = self._communication(row)
        args = self.change(row, args)
        number = next(correlation)
        gpu = kernel(f"ncclDevKernel_{name}", start, length, number, STREAMS.get(row["type"], 30))
        gpu["args"] |= args
        return [op("record_param_comms", call, 1, **args), launch(number, call + 0.2, 0.5), gpu]

    def _computation(self, row: Row, call: float, correlation: Any) -> list[Event]:
        start, end = row["start_ns"], row["end_ns"]
        half, thread, events = (start + end) // 2, 1, []
        if row["type"] == "backward_compute":
            thread = 2
            events.append(op("autograd::engine::evaluate_function: MmBackward0", call, 1.2, thread))
        elif row["type"] == "optimizer":
            events.append(span("Optimizer.step#AdamW.step", call, 1.2))
        for k, (begin, over) in enumerate(((start, half - 1000), (half, end))):
            number, at_call = next(correlation), call + 0.1 + 0.5 * k
            events.append(op("aten::mm", at_call, 0.4, thread))
            events.append(launch(number, at_call + 0.1, 0.2, thread))
            events.append(kernel("gemm", begin / 1e3, (over - begin) / 1e3, number))
        return events

    def _communication(self, row: Row) -> tuple[str, Row]:
        replica, stage, type_ = row["dp_rank"], row["stage"], row["type"]
        if type_ in STREAMS:
            way, side = type_.split("_")
            onward = (way == "forward") == (side == "send")
            peer = self.rank_of[replica, (stage + (1 if onward else -1)) % self.stages]
            members = [self.rank_of[replica, s] for s in range(self.stages)]
            key = "Dst Rank" if side == "send" else "Src Rank"
            return "SendRecv", _args(side, members, f"pp{replica}", 1 << 16) | {key: peer}
        called, name, elements = COLLECTIVES[type_]
        members = [self.rank_of[d, stage] for d in range(self.replicas)]
        if type_ == "clip_grads":
            members = sorted(self.rank_of.values())
        return f"{name}_RING_LL", _args(called, members, f"{type_}{members[0]}", elements)


def _args(called: str, members: list[int], group: str, elements: int) -> Row:
    return {
        "Collective name": called,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "dtype": "Float",
        "Group size": len(members),
        "Process Group Name": group,
        "Process Group Ranks": str(members),
    }
