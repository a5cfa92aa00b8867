"""A small trace: operators that launch kernels, for tests of the analyses of operators."""

from pathlib import Path
from typing import Any

from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write


def call(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return {**op(name, ts, dur, tid), "cat": "python_function"}


def sequenced(event: Event, sequence: int, forward_thread: int = 0) -> Event:
    args = {**event["args"], "Sequence number": sequence, "Fwd thread id": forward_thread}
    return {**event, "args": args}


def training_step(folder: Path) -> Trace:
    """Forward on thread 1 in two modules, backward on thread 2; times in µs.

    linear [10,30) calls addmm [12,28), which launches gemm (20) and add (5); relu [40,50) launches
    relu (4). AddmmBackward0 [60,90) calls mm [65,85), which launches gemm (40). One kernel (7) was
    launched before the recording, one (3) by Python outside any operator.
    """
    shaped: dict[str, Any] = {"Input Dims": [[8, 4], [4]], "Input type": ["float", "float"]}
    events = [
        step(0, 0, 100),
        span("forward", 5, 50),
        call("train.py(1): main", 0, 100),
        call("nn.Module: Net_0", 6, 48),
        call("nn.Module: Linear_1", 8, 24),
        op("aten::linear", 10, 20),
        sequenced(op("aten::addmm", 12, 16, **shaped), 3),
        launch(1, 13),
        launch(2, 15),
        op("aten::relu", 40, 10),
        launch(3, 42),
        sequenced(op("AddmmBackward0", 60, 30, tid=2), 3, 1),
        op("aten::mm", 65, 20, tid=2),
        launch(4, 66, tid=2),
        launch(5, 95),
        kernel("carried", 1, 7, 0),
        kernel("gemm", 20, 20, 1),
        kernel("add", 40, 5, 2),
        kernel("relu", 50, 4, 3),
        kernel("gemm", 70, 40, 4),
        kernel("outside", 120, 3, 5),
    ]
    return open_trace(write(folder / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
