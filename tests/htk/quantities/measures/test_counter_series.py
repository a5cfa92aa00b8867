"""Counters of a recording worked out by hand: memory, queues, copies, and those it holds itself."""

from pathlib import Path
from typing import Any

from htk.quantities.measures.counter_series import CounterSeries, counter_series, recorded_series
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, write


def memory(ts: float, total: int, device: int = 0, device_type: int = 1) -> Event:
    args = {"Device Type": device_type, "Device Id": device, "Addr": 1, "Bytes": 8}
    args |= {"Total Allocated": total, "Total Reserved": 2 * total}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1,
            "ts": ts, "s": "t", "args": args}  # fmt: skip


def copy(ts: float, dur: float, stream: int, rate: float, link: int) -> Event:
    event = kernel("Memcpy HtoD (Pinned -> Device)", ts, dur, link, stream)
    args = {**event["args"], "bytes": 8, "memory bandwidth (GB/s)": rate}
    return {**event, "cat": "gpu_memcpy", "args": args}


def count(ts: float, name: str, **values: float) -> Event:
    return {"ph": "C", "name": name, "pid": 1, "tid": 1, "ts": ts, "args": values}


def traced(tmp_path: Path, *events: Event) -> Trace:
    return open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))


def by_name(series: Any, origin: int) -> dict[str, list[tuple[int, float]]]:
    def points(one: CounterSeries) -> list[tuple[int, float]]:
        return list(zip((one.time - origin).tolist(), one.value.tolist(), strict=True))

    return {one.name: points(one) for one in series}


def test_counters_by_hand(tmp_path: Path) -> None:
    """Two launches at 1 and 2 start at 5 and 9 on stream 7; two copies overlap from 14 to 16 µs.
    Of memory at one moment the last total counts, and that of the CPU does not."""
    trace = traced(
        tmp_path, launch(1, 1), launch(2, 2), launch(3, 10), launch(4, 11),
        kernel("gemm", 5, 3, 1), kernel("gemm", 9, 3, 2),
        copy(12, 4, 8, 2.5, 3), copy(14, 6, 9, 1.5, 4),
        memory(3, 100), memory(6, 300), memory(6, 200), memory(4, 999, 0, 0),
    )  # fmt: skip
    tables = (trace.tables[name] for name in ("kernels", "kernel_links", "memory"))
    series = by_name(counter_series(*tables), trace.origin_ns - 1_000)
    assert series["queue length, stream 7"] == [(1_000, 1), (2_000, 2), (5_000, 1), (9_000, 0)]
    assert series["queue length, stream 8"] == [(10_000, 1), (12_000, 0)]
    rates = [(12_000, 2.5), (14_000, 4.0), (16_000, 1.5), (20_000, 0.0)]
    assert series["Memcpy HtoD (Pinned -> Device)"] == rates
    assert series["memory allocated"] == [(3_000, 100), (6_000, 200)], (
        "the last of a moment; no CPU"
    )
    assert series["memory reserved"] == [(3_000, 200), (6_000, 400)]


def test_memory_of_several_gpus_is_told_apart(tmp_path: Path) -> None:
    trace = traced(tmp_path, kernel("gemm", 1, 9), memory(2, 10, 0), memory(3, 70, 1))
    tables = (trace.tables[name] for name in ("kernels", "kernel_links", "memory"))
    series = by_name(counter_series(*tables), trace.origin_ns)
    assert series["memory allocated, GPU 0"] == [(1_000, 10)]
    assert series["memory allocated, GPU 1"] == [(2_000, 70)]


def test_counters_that_the_recording_holds(tmp_path: Path) -> None:
    trace = traced(
        tmp_path, kernel("gemm", 1, 9),
        count(2, "power", watts=300.0), count(4, "power", watts=310.5),
        count(3, "links", sent=1, received=2), count(5, "links", sent=3, received=4),
    )  # fmt: skip
    series = by_name(recorded_series(trace.tables["counters"]), trace.origin_ns)
    assert series == {
        "power, watts": [(1_000, 300.0), (3_000, 310.5)],
        "links, sent": [(2_000, 1.0), (4_000, 3.0)],
        "links, received": [(2_000, 2.0), (4_000, 4.0)],
    }
