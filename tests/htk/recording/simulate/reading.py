"""A slow and simple reading of a simulated trace: json and Decimal, one event after the other.

Shares no code with htk, so that both can be wrong only each in its own way.
"""

import gzip
import itertools
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

KINDS = {"gpu_memcpy": "memory", "gpu_memset": "memory"}

Span = tuple[int, int]


def whole_ns(base: int, micros: Decimal) -> int:
    exact = micros * 1000
    assert exact == int(exact), "written with more than three decimals"
    return base + int(exact)


def read(file: Path) -> dict[str, Any]:
    """What truth.json says of a rank, from its file alone."""
    trace = json.loads(gzip.decompress(file.read_bytes()), parse_float=Decimal)
    base = trace["baseTimeNanoseconds"]
    steps: dict[int, Span] = {}
    launched_at: dict[int, int] = {}
    activities: list[tuple[int, int, str, str, int]] = []
    allocated: list[Span] = []
    for event in trace["traceEvents"]:
        category = event.get("cat")
        if category == "cpu_instant_event":
            time_ns = whole_ns(base, Decimal(event["ts"]))
            allocated.append((time_ns, int(event["args"]["Total Allocated"])))
        if event["ph"] != "X":
            continue
        start = whole_ns(base, Decimal(event["ts"]))
        end = start + whole_ns(0, Decimal(event["dur"]))
        if category == "user_annotation" and event["name"].startswith("ProfilerStep#"):
            steps[int(event["name"].partition("#")[2])] = (start, end)
        elif category == "cuda_runtime":
            launched_at[event["args"]["correlation"]] = start
        elif category in ("kernel", "gpu_memcpy", "gpu_memset"):
            kind = "comm" if "nccl" in event["name"] else KINDS.get(category, "compute")
            activities.append((start, end, kind, event["name"], event["args"]["correlation"]))
    by_step = _of_steps(steps, launched_at, activities)
    for step in by_step["steps"]:
        low, high = steps[step["step"]]
        step["peak_allocated_bytes"] = max([b for t, b in allocated if low <= t < high], default=0)
    return {"peak_allocated_bytes": max([b for _, b in allocated], default=0), **by_step}


def _of_steps(
    steps: dict[int, Span],
    launched_at: dict[int, int],
    activities: list[tuple[int, int, str, str, int]],
) -> dict[str, Any]:
    def step_of(correlation: int) -> int | None:
        launch_ns = launched_at.get(correlation)
        return next(
            (k for k, (a, b) in steps.items() if launch_ns is not None and a <= launch_ns < b), None
        )

    numbered = [(step_of(c), start, end, kind, name) for start, end, kind, name, c in activities]
    begin = min(a for _, a, _, _, _ in numbered)
    rows = []
    low = begin
    for number in sorted(steps):
        launched = [row for row in numbered if row[0] == number]
        high = max([low, *(end for _, _, end, _, _ in launched)])
        kernels: dict[str, dict[str, int]] = defaultdict(lambda: {"count": 0, "total_ns": 0})
        for _, start, end, _, name in launched:
            kernels[name]["count"] += 1
            kernels[name]["total_ns"] += end - start
        clipped = [
            (max(a, low), min(b, high), kind)
            for _, a, b, kind, _ in numbered
            if min(b, high) > max(a, low)
        ]
        figures = _figures(low, high, clipped)
        rows.append(
            {"step": number, "launched": len(launched), "kernels": dict(kernels), **figures}
        )
        low = high
    return {
        "window_start_ns": begin,
        "window_end_ns": max(b for _, _, b, _, _ in numbered),
        "steps": rows,
    }


def _figures(low: int, high: int, clipped: list[tuple[int, int, str]]) -> dict[str, int]:
    edges = sorted({low, high, *(a for a, _, _ in clipped), *(b for _, b, _ in clipped)})
    time: dict[frozenset[str], int] = defaultdict(int)
    order = sorted(clipped)
    active: list[tuple[int, int, str]] = []
    for a, b in itertools.pairwise(edges):
        while order and order[0][0] <= a:
            active.append(order.pop(0))
        active = [span for span in active if span[1] > a]
        time[frozenset(kind for _, _, kind in active)] += b - a

    def total(wanted: str, without: tuple[str, ...] = ()) -> int:
        return sum(ns for kinds, ns in time.items() if wanted in kinds and not kinds & set(without))

    idle = time[frozenset()]
    return {
        "start_ns": low,
        "end_ns": high,
        "total_ns": high - low,
        "busy_ns": high - low - idle,
        "idle_ns": idle,
        "compute_ns": total("compute"),
        "comm_ns": total("comm"),
        "memory_ns": total("memory"),
        "overlap_ns": total("comm") - total("comm", ("compute",)),
        "exposed_comm_ns": total("comm", ("compute",)),
        "exposed_memory_ns": total("memory", ("compute", "comm")),
    }
