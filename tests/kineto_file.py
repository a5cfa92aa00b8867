"""Writes small Kineto files, event by event, for tests."""

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def op(name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> Event:
    return _complete("cpu_op", name, ts, dur, 100, tid, args)


def launch(correlation: int, ts: float, dur: float = 1, tid: int = 1) -> Event:
    return _complete(
        "cuda_runtime", "cudaLaunchKernel", ts, dur, 100, tid, {"correlation": correlation}
    )


def kernel(name: str, ts: float, dur: float, correlation: int = 0, stream: int = 7) -> Event:
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return _complete("kernel", name, ts, dur, 0, stream, args)


def span(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return _complete("user_annotation", name, ts, dur, 100, tid, {})


def step(number: int, ts: float, dur: float) -> Event:
    return span(f"ProfilerStep#{number}", ts, dur)


def profiled(name: str, ts: float, **metrics: float) -> Event:
    """Return the metrics that CUPTI's range profiler took of a kernel."""
    return _complete("cuda_profiler_range", name, ts, 5, 0, 0, metrics)


def write(path: Path, *events: Event, **header: Any) -> Path:
    path.write_text(json.dumps({**header, "traceEvents": list(events)}))
    return path


def of_rank(rank: int, world_size: int = 1, base: int = 0) -> dict[str, Any]:
    info = {"rank": rank, "world_size": world_size, "backend": "nccl"}
    return {"distributedInfo": info, "baseTimeNanoseconds": base}


def _complete(
    cat: str, name: str, ts: float, dur: float, pid: int, tid: int, args: dict[str, Any]
) -> Event:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }
