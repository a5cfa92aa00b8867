"""How far kernels are from measured ones: by hand, and on steps recorded on an H100."""

from pathlib import Path

import pytest

import htk
from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, write

RECORDED = Path(__file__).parents[4] / "bench/gpu/recorded/steps/base"
_DIMS = [[4096, 4096], [4096, 4096]]


def _call(name: str, ts: int, durations: list[int], dims: list[list[int]]) -> list[Event]:
    """A call that launches kernels, one behind the other."""
    types = ["c10::BFloat16" for _ in dims]
    events = [op(name, ts, 10, **{"Input Dims": dims, "Input type": types})]
    for place, duration in enumerate(durations):
        events += [
            launch(ts + place, ts + 1 + place),
            kernel(f"k{place}", 1_000 * ts + 100 * place, duration, ts + place),
        ]
    return events


def _trace(folder: Path, device: str = "NVIDIA H100 80GB HBM3", units: int = 132) -> Trace:
    events = [
        *_call("aten::mm", 10, [350], _DIMS),
        *_call("aten::mm", 30, [90, 20], _DIMS),
        *_call("aten::bmm", 50, [900], [[4, 4096, 64], [4, 64, 4096]]),
        *_call("aten::relu", 70, [50], [[4]]),
    ]
    properties = [{"id": 0, "name": device, "totalGlobalMem": 85_000_000_000, "numSms": units}]
    facts = of_rank(0) | {"deviceProperties": properties}
    return open_trace(write(folder / "t.json", *events, **facts), OpenOptions(cache=False))


def test_a_gap_is_what_calls_take_beyond_measured_kernels(tmp_path: Path) -> None:
    answer = ask_trace(_trace(tmp_path), "kernel_gap")
    typical = htk.kernel_time(op="matmul", gpu="h100", m=4096, n=4096, k=4096).to_pylist()[0]
    batched, single = answer.to_pylist()
    assert (single["name"], single["count"], single["device_ns"]) == ("aten::mm", 2, 460_000)
    assert single["typical_ns"] == pytest.approx(2 * typical["expected_ns"], abs=2)
    assert single["best_ns"] == pytest.approx(2 * typical["best_ns"], abs=2)
    assert single["gap_ns"] == pytest.approx(460_000 - single["typical_ns"])
    assert single["basis"] == "measured"
    assert (batched["name"], batched["basis"]) == ("aten::bmm", "formula")
    assert answer.coverage["answered_pct_of_device_time"] == round(100 * 1360 / 1410, 2)
    assert answer.coverage["no_measured_neighbour_pct"] == round(100 * 900 / 1410, 2)


def test_rows_of_families_hold_what_rows_of_shapes_do(tmp_path: Path) -> None:
    trace = _trace(tmp_path)
    shapes = ask_trace(trace, "kernel_gap", n=0).to_pylist()
    for by in ("op", "family", "kernel", "stream", "phase"):
        rows = ask_trace(trace, "kernel_gap", by=by, n=0).to_pylist()
        for name in ("count", "device_ns", "typical_ns", "best_ns", "gap_ns"):
            total = sum(r[name] for r in shapes)
            assert sum(r[name] for r in rows) == pytest.approx(total, rel=1e-4, abs=4)


def test_a_gpu_that_is_not_known_has_no_gap(tmp_path: Path) -> None:
    answer = ask_trace(_trace(tmp_path, "Some GPU", 7), "kernel_gap")
    assert answer.table.num_rows == 0
    assert answer.coverage["not_measured_ns"] == {"the GPU is not known": 1_360_000}


def test_products_of_a_recorded_step_take_what_was_measured_elsewhere() -> None:
    """The atlas holds servers' kernels of another H100; this is PyTorch's training step."""
    rows = {row["family"]: row for row in htk.open(RECORDED).kernel_gap(by="family")}
    assert rows["gemm"]["of_typical_pct"] == pytest.approx(100, abs=6)
    attention = rows["attention"]  # FlashAttention-2, which is not made for Hopper
    assert attention["of_typical_pct"] > 125
    assert attention["typical_lo90_ns"] < attention["typical_ns"] < attention["device_ns"]
