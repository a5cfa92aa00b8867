"""Counters of GPUs over spans of time, by hand."""

import numpy as np
import pyarrow as pa
import pytest

from htk.base.columns.groups import Groups
from htk.quantities.measures.gpu_counters import COLUMNS, SpanMeans
from tests.tables import make


def means(
    samples: dict[str, list[tuple[int, float]]], *spans: tuple[int, int], process: str = "GPU 0"
) -> dict[str, float | None]:
    """The mean of all spans, of GPU 0 of rank 0."""
    rows = [
        {"rank": 0, "name": name, "process": process, "series": "", "time_ns": time, "value": value}
        for name, points in samples.items()
        for time, value in points
    ]
    kernels = make(
        "kernels", [{"rank": 0, "device": 0, "start_ns": a, "end_ns": b} for a, b in spans]
    )
    groups = Groups.by_keys(np.zeros(len(spans), np.int64))
    columns: list[pa.Array] = list(SpanMeans(make("counters", rows), kernels).of_groups(groups))
    found = {name: column.to_pylist()[0] for name, column in zip(COLUMNS, columns, strict=True)}
    return {name: value for name, value in found.items() if value is not None}


def test_a_value_holds_until_the_next_sample() -> None:
    clock = {"SM Clock (MHz)": [(10, 1_000.0), (20, 2_000.0), (40, 500.0)]}
    assert means(clock, (10, 20)) == {"clock_mhz": 1_000}
    assert means(clock, (15, 25)) == {"clock_mhz": 1_500}
    assert means(clock, (0, 20)) == {"clock_mhz": 1_000}  # what comes before is not known
    assert means(clock, (0, 10), (30, 60)) == {"clock_mhz": pytest.approx((0.5 * 1 + 1.0) / 1.5e-3)}
    assert means(clock, (0, 5)) == {}
    assert means(clock, (25, 25)) == {"clock_mhz": 2_000}


def test_spans_weigh_by_their_lengths() -> None:
    power = {"Power (W)": [(0, 100.0), (100, 400.0)]}
    assert means(power, (0, 30), (100, 110)) == {"power_w": 175}


def test_names_tell_the_quantity() -> None:
    names = {
        "GPC Clock Frequency [MHz]": "clock_mhz",
        "DCGM_FI_DEV_SM_CLOCK": "clock_mhz",
        "DCGM_FI_DEV_POWER_USAGE": "power_w",
        "GPU Temperature (C)": "temperature_c",
        "SMs Active [Throughput %]": "sm_active_pct",
        "HBM BW (%)": "memory_busy_pct",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory_busy_pct",
    }
    for name, quantity in names.items():
        assert means({name: [(0, 7.0)]}, (1, 2)) == {quantity: 7}, name
    for other in ("Memory Clock (MHz)", "Memory temperature", "Cycles (Current Kernel)", "SYS"):
        assert means({other: [(0, 7.0)]}, (1, 2)) == {}, other
    both = {f"DRAM {way} Bandwidth [Throughput %]": [(0, 20.0)] for way in ("Read", "Write")}
    assert means(both, (1, 2)) == {"memory_busy_pct": 40}


def test_counters_of_another_gpu_say_nothing() -> None:
    assert means({"Power (W)": [(0, 100.0)]}, (1, 2), process="GPU 1") == {}
