"""Recordings of a few steps, as tables."""

from pathlib import Path
from typing import Any

from htk.traces.trace.opening import open_trace
from tests.kineto_file import Event, kernel, launch, op, step, write


def recording(path: Path, steps: list[list[tuple[str, float]]]) -> Any:
    """Steps of 100 us, each running kernels of these names and lengths.

    What ended before the recording lets the first step wait as long as the others.
    """
    events: list[Event] = [kernel("gemm", -80, 0)]
    for k, kernels in enumerate(steps):
        ts = 100.0 * k
        events += [step(k, ts, 100), op("aten::mm", ts, 90)]
        for name, length in kernels:
            correlation = len(events)
            events += [launch(correlation, ts + 1), kernel(name, ts + 5, length, correlation)]
            ts += length + 1
    return open_trace(write(path, *events)).tables
