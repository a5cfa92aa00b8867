"""Answers that the activities of GPUs give by themselves."""

import itertools
import json
import math
from collections import Counter
from typing import Any

from bench.truth.expected.sums import (
    Row,
    Rows,
    clip,
    deviation,
    group,
    length_of,
    percent,
    quantile,
    union,
)
from bench.truth.made import COPIES, KERNELS, SETS
from bench.truth.model import Activity, Recording

Label = tuple[str, str, str | None, bool | None]


def label_of(activity: Activity) -> Label:
    """Return kind, family, library and use of tensor cores."""
    if activity.sort != "kernel":
        return "memory", activity.sort, None, None
    return KERNELS[activity.name]


def kernel_top(recording: Recording, per: str) -> Rows:
    rows: Rows = {}
    for who, pool in _pools(recording, per).items():
        all_time, reached = sum(a.length for a in pool), 0
        by_name = group(pool, lambda a: a.name)
        for name in sorted(by_name, key=lambda name: (-sum(a.length for a in by_name[name]), name)):
            alike = by_name[name]
            reached += sum(a.length for a in alike)
            lengths = [a.length for a in alike]
            kind, family, library, tensor_core = label_of(alike[0])
            rows[(*who, name)] = {
                **{"kind": kind, "family": family, "library": library, "tensor_core": tensor_core},
                "kernel": None,  # of rows of several
                **{"count": len(lengths), "total_ns": sum(lengths)},
                "duration_ns_mean": sum(lengths) / len(lengths),
                **{"duration_ns_min": min(lengths), "duration_ns_max": max(lengths)},
                "duration_ns_std": deviation(lengths),
                "duration_ns_p50": quantile(lengths, 0.5),
                "duration_ns_p95": quantile(lengths, 0.95),
                "kernel_time_pct": percent(sum(lengths), all_time),
                "cumulative_pct": percent(reached, all_time),
                **dict.fromkeys(_SAMPLED),
            }
    return rows


# By counters, of which these recordings have none.
_SAMPLED = ("clock_mhz", "power_w", "temperature_c", "sm_active_pct", "memory_busy_pct")


def kernel_families(recording: Recording, per: str) -> Rows:
    rows: Rows = {}
    for who, pool in _pools(recording, per).items():
        all_time = sum(a.length for a in pool)
        for (kind, family), alike in group(pool, lambda a: label_of(a)[:2]).items():
            total = sum(a.length for a in alike)
            on = sum(a.length for a in alike if label_of(a)[3] is True)
            off = sum(a.length for a in alike if label_of(a)[3] is False)
            matrix = family in ("gemm", "attention", "convolution", "moe")
            # Copies and sets compute nothing: no cores are unknown of them.
            unknown = total - on - off if kind != "memory" else 0
            rows[(*who, family, kind)] = {
                "distinct_kernels": len({a.name for a in alike}),
                **{"count": len(alike), "total_ns": total},
                "duration_ns_mean": total / len(alike),
                "kernel_time_pct": percent(total, all_time),
                **{"tensor_core_ns": on, "no_tensor_core_ns": off},
                "tensor_core_unknown_ns": unknown,
                "tensor_core_pct": percent(on, on + off) if matrix else None,
            }
    return rows


def _pools(recording: Recording, per: str) -> dict[Any, list[Activity]]:
    if per == "step":  # refused without steps
        return group(recording.activities if recording.steps else [], lambda a: (0, a.step))
    return group(recording.activities, lambda a: (None if per == "all" else 0, None))


Window = tuple[int, int | None, int, int]


def windows_of(recording: Recording) -> list[Window]:
    """Return device, step, begin and end of what each device was recorded for."""
    return [
        (device, None, min(a.start for a in own), max(a.end for a in own))
        for device, own in group(recording.activities, lambda a: a.device).items()
    ]


def step_windows(recording: Recording) -> list[Window]:
    """A step ends with the last end of what it launched, and begins where the one before ended."""
    windows: list[Window] = []
    for device, _, begin, end in windows_of(recording):
        ends: dict[int, int] = {}
        for activity in recording.activities:
            if activity.device == device and activity.step is not None:
                ends[activity.step] = max(ends.get(activity.step, 0), activity.end)
        for step in sorted(ends):
            reached = max(begin, ends[step])
            windows.append((device, step, begin, reached))
            begin = reached
        if ends and begin < end:
            windows.append((device, None, begin, end))
    return windows


def _windows(recording: Recording, per: str) -> list[Window]:
    return windows_of(recording) if per == "rank" else step_windows(recording)


def time_breakdown(recording: Recording, per: str) -> Rows:
    rows: Rows = {}
    for device, step, begin, end in _windows(recording, per):
        own = [a for a in recording.activities if a.device == device]

        def covered(*kinds: str, own: list[Activity] = own) -> list[tuple[int, int]]:
            return union((a.start, a.end) for a in own if label_of(a)[0] in kinds)

        def time(*kinds: str, begin: int = begin, end: int = end) -> int:
            return length_of(clip(covered(*kinds), begin, end))

        every = ("compute", "comm", "memory")
        of_a_kind, busy, total = time(*every), time(*every, "other"), end - begin
        row: Row = {
            **{"total_ns": total, "busy_ns": busy, "compute_ns": time("compute")},
            **{"comm_ns": time("comm"), "memory_ns": time("memory")},
            "exposed_comm_ns": time("compute", "comm") - time("compute"),
            "exposed_memory_ns": of_a_kind - time("compute", "comm"),
            "other_ns": busy - of_a_kind,
            "idle_ns": total - busy,
        }
        shares = {
            name.replace("_ns", "_pct"): percent(value, total)
            for name, value in row.items()
            if name != "total_ns"
        }
        rows[0, device, step] = {**row, **shares}
    return rows


def kernel_kinds(recording: Recording, per: str) -> Rows:
    """Return the time of each set of kinds that run at once, of the rank."""
    rows: Rows = {}
    for device, step, begin, end in _windows(recording, per):
        own = [a for a in recording.activities if a.device == device]
        edges = sorted({t for a in own for t in (a.start, a.end)} | {begin, end})
        times: Counter[str] = Counter()
        for low, high in itertools.pairwise(edges):
            if begin <= low < end:
                kinds = {label_of(a)[0] for a in own if a.start <= low and high <= a.end}
                if kinds:
                    times["+".join(k for k in ("compute", "comm", "memory") if k in kinds)] += (
                        high - low
                    )
        for kinds_together, time in times.items():
            rows[0, device, step, kinds_together] = {
                "total_ns": time,
                "busy_pct": percent(time, sum(times.values())),
            }
    return rows


def step_times(recording: Recording) -> Rows:
    rows: Rows = {}
    host = {int(s.name.partition("#")[2]): s for s in recording.steps}
    windows = [w for w in step_windows(recording) if w[1] is not None]
    for device, step, begin, end in windows:
        assert step is not None
        span = host[step]
        rows[0, device, step] = {
            **{"start_ns": begin, "cpu_ns": span.length, "gpu_period_ns": end - begin},
            **{"duration_ns": end - begin, "launch_lag_ns": end - span.end},
        }
    for step, span in host.items():
        if not any(w[1] == step for w in windows):
            # Its time is in the period of the step that follows, where there is GPU work at all.
            alone = None if windows else span.length
            rows[0, None, step] = {
                **{"start_ns": span.start, "cpu_ns": span.length, "gpu_period_ns": None},
                **{"duration_ns": alone, "launch_lag_ns": None},
            }
    return rows


def memory_bandwidth(recording: Recording) -> Rows:
    moving = [a for a in recording.activities if a.sort != "kernel"]
    ways = {**COPIES, **SETS}
    rows: Rows = {}
    for (direction, memory), alike in group(moving, lambda a: ways[a.name]).items():
        sizes = [a.facts["bytes"] for a in alike]
        busy = length_of(union((a.start, a.end) for a in alike))
        rates = [a.facts["bytes"] / a.length for a in alike if a.length]
        large = [a.facts["bytes"] / a.length for a in alike if a.length and _is_large(a)]
        rows[0, direction, memory] = {
            **{"count": len(alike), "size_bytes": sum(sizes)},
            "size_bytes_p50": quantile(sizes, 0.5),
            **{"total_ns": sum(a.length for a in alike), "busy_ns": busy},
            "bandwidth_gbps": sum(sizes) / busy if busy else None,
            "copy_gbps_p50": quantile(rates, 0.5) if rates else None,
            "copy_gbps_max": max(large) if large else None,
            "small_count": sum(size < 65536 for size in sizes),
            "without_size": 0,
        }
    return rows


def _is_large(activity: Activity) -> bool:
    return bool(activity.facts["bytes"] >= 1 << 20)


def kernel_occupancy(recording: Recording) -> Rows:
    kernels = [a for a in recording.activities if a.sort == "kernel"]
    all_time = sum(a.length for a in recording.activities)
    rows: Rows = {}
    for key, alike in group(kernels, _configuration).items():
        name, grid, block, registers, shared = key
        blocks, threads = math.prod(grid), math.prod(block)
        fit = _blocks_that_fit(recording.gpu, threads, registers, shared)
        sms = recording.gpu["numSms"]
        looping = label_of(alike[0])[1] == "gemm" and blocks in (sms, 2 * sms)
        waves = blocks / (fit * sms)
        held = -(-threads // 32) * 32 * fit  # all_time warps hold their places
        total = sum(a.length for a in alike)
        dims = [json.dumps(size, separators=(",", ":")) for size in (grid, block)]
        rows[(name, *dims, fit, total, len(alike))] = {
            **{"family": label_of(alike[0])[1], "count": len(alike)},
            "kernel_time_pct": percent(total, all_time),
            **{"blocks": blocks, "threads_per_block": threads, "multiprocessors": sms},
            "blocks_per_sm": blocks / sms,
            "occupancy_pct": 100
            * held
            * min(1, blocks / sms / fit)
            / recording.gpu["maxThreadsPerMultiprocessor"],
            "occupancy_limit_pct": 100 * held / recording.gpu["maxThreadsPerMultiprocessor"],
            "waves": None if looping else waves,
            "tail_pct": (None if looping else 100 * (math.ceil(waves) - waves) / math.ceil(waves)),
            "persistent": looping,
        }
    return rows


def _configuration(activity: Activity) -> tuple[Any, ...]:
    facts = activity.facts
    dims = tuple(facts["grid"]), tuple(facts["block"])
    return activity.name, *dims, facts["registers"], facts["shared"]


def _blocks_that_fit(gpu: dict[str, Any], threads: int, registers: int, shared: int) -> int:
    """As NVIDIA's occupancy calculator has it, for compute capability 8.0."""
    warps = -(-threads // 32)
    by_threads = gpu["maxThreadsPerMultiprocessor"] // 32 // warps
    per_warp = -(-registers * 32 // 256) * 256
    warps_of_quarter = gpu["regsPerMultiprocessor"] // 4 // per_warp
    by_registers = 4 * warps_of_quarter // warps
    granted = -(-(shared + 1024) // 128) * 128
    by_memory = gpu["sharedMemPerMultiprocessor"] // granted
    return max(min(by_threads, by_registers, by_memory, 32), 1)
