"""Matrix products, attention and convolutions by shape: by hand, and beside TraceLens' sheets."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.tracelens import REFERENCES, report
from tests.kineto_file import Event, kernel, launch, of_rank, op, write

_BF16 = "c10::BFloat16"


def shaped(dims: list[Any], strides: list[Any] | None = None) -> dict[str, Any]:
    types = [_BF16 if size else "" for size in dims]
    recorded = {"Input Dims": dims, "Input type": types}
    return recorded if strides is None else {**recorded, "Input Strides": strides}


def product(name: str, ts: int, durations: list[int], **args: Any) -> list[Event]:
    """A call that launches kernels, one behind the other on a stream of its own."""
    events = [op(name, ts, 10, **args)]
    for place, duration in enumerate(durations):
        events += [
            launch(ts + place, ts + 1 + place),
            kernel(f"k{place}", 1_000 * ts + 100 * place, duration, ts + place),
        ]
    return events


def test_by_hand(tmp_path: Path) -> None:
    dims = [[128, 64], [64, 32]]
    events = [
        *product("aten::mm", 10, [8], **shaped(dims, [[64, 1], [32, 1]])),
        *product("aten::mm", 30, [4, 2], **shaped(dims, [[64, 1], [32, 1]])),
        *product("aten::mm", 50, [16], **shaped(dims, [[64, 1], [1, 64]])),
        *product("aten::bmm", 70, [5], **shaped([[3, 7, 11], [3, 11, 13]])),
        *product("aten::linear", 90, [3], **shaped([[2, 5, 17], [19, 17], [19]])),
        *product("aten::relu", 110, [50], **shaped([[4]])),
    ]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    rows = ask_trace(trace, "matrix_calls").to_pylist()
    sizes = [
        (
            r["op"],
            r["batch"],
            r["product_m"],
            r["product_n"],
            r["product_k"],
            r["count"],
            r["kernels"],
        )
        for r in rows
    ]
    assert sizes == [
        ("aten::mm", 1, 128, 32, 64, 1, 1),
        ("aten::mm", 1, 128, 32, 64, 2, 3),
        ("aten::bmm", 3, 7, 13, 11, 1, 1),
        ("aten::linear", 1, 10, 19, 17, 1, 1),
    ]
    flops = 2 * 128 * 64 * 32
    _, twice, batched, linear = rows
    assert twice["strides"] == "[[64,1],[32,1]]" and batched["strides"] is None
    assert twice["device_ns"] == 14_000
    assert (twice["call_ns_min"], twice["call_ns_p50"], twice["call_ns_max"]) == (6000, 7000, 8000)
    rates = [flops / 8_000 / 1e3, flops / 6_000 / 1e3]
    assert twice["achieved_tflops"] == pytest.approx(2 * flops / 14_000 / 1e3)
    assert twice["achieved_tflops_min"] == pytest.approx(rates[0])
    assert twice["achieved_tflops_p50"] == pytest.approx(mean(rates))
    assert twice["achieved_tflops_max"] == pytest.approx(rates[1])
    assert twice["achieved_tflops_std"] == pytest.approx(stdev(rates))
    assert twice["kernel_names"] == '["k0", "k1"]'
    assert batched["flops_per_call"] == 2 * 3 * 7 * 11 * 13
    assert batched["achieved_tflops_std"] is None, "one call has no spread"
    assert linear["flops_per_call"] == 2 * 10 * 17 * 19 + 10 * 19, "a bias is added"


@pytest.mark.parametrize("name", [n for n in REFERENCES if n != "torch_compile_triton/trace"])
def test_products_are_those_that_tracelens_lists(shared: Path, name: str) -> None:
    """Sizes, calls, GPU times and rates, and their spread."""
    folder = shared / "traces/tracelens"
    theirs = report(folder, name, "GEMM")
    trace = open_trace(str(folder / f"{name}.json.gz"), OpenOptions(cache=False))
    rows = [r for r in ask_trace(trace, "matrix_calls", n=0).to_pylist() if r["family"] == "gemm"]
    keyed = {(r["op"], r["batch"], r["product_m"], r["product_n"], r["product_k"]): r for r in rows}
    assert theirs
    for row in theirs:
        sizes = tuple(int(row[f"param: {size}"]) for size in "BMNK")
        own = keyed[row["name"], *sizes]
        assert own["count"] == int(row["name_count"])
        assert own["device_ns"] == pytest.approx(1e3 * float(row["Kernel Time (µs)_sum"]), abs=2)
        for statistic, column in (("median", "p50"), ("min", "min"), ("max", "max")):
            expected = 1e3 * float(row[f"Kernel Time (µs)_{statistic}"])
            assert own[f"call_ns_{column}"] == pytest.approx(expected, abs=2)
            rate = float(row[f"TFLOPS/s_{statistic}"])
            assert own[f"achieved_tflops_{column}"] == pytest.approx(rate, rel=5e-3)
        if own["count"] > 1:
            spread = float(row["TFLOPS/s_std"])
            assert own["achieved_tflops_std"] == pytest.approx(spread, rel=5e-3)


def test_attention_as_tracelens_sizes_it(shared: Path) -> None:
    name = next(n for n in REFERENCES if "Qwen" in n)
    folder = shared / "traces/tracelens"
    (row,) = report(folder, name, "SDPA_fwd")
    trace = open_trace(str(folder / f"{name}.json.gz"), OpenOptions(cache=False))
    (own,) = [r for r in ask_trace(trace, "matrix_calls").to_pylist() if r["family"] == "attention"]
    columns = {
        "batch": "B",
        "query_length": "N_Q",
        "heads": "H_Q",
        "key_length": "N_KV",
        "kv_heads": "H_KV",
        "head_size": "d_h_qk",
    }
    assert {c: own[c] for c in columns} == {c: int(row[f"param: {p}"]) for c, p in columns.items()}
    assert own["call_ns_p50"] == pytest.approx(1e3 * float(row["Kernel Time (µs)_median"]), abs=2)


def test_convolutions_have_channels(shared: Path) -> None:
    name = next(n for n in REFERENCES if "Falconsai" in n)
    folder = shared / "traces/tracelens"
    (row,) = report(folder, name, "CONV_fwd")
    trace = open_trace(str(folder / f"{name}.json.gz"), OpenOptions(cache=False))
    (own,) = [
        r for r in ask_trace(trace, "matrix_calls").to_pylist() if r["family"] == "convolution"
    ]
    assert (own["batch"], own["channels_in"], own["channels_out"]) == (4, 3, 768)
    assert row["param: input_shape"] == "(4, 3, 224, 224)"
    assert row["param: filter_shape"] == "(768, 3, 16, 16)"
    assert own["flops_per_call"] == pytest.approx(1e9 * float(row["GFLOPS_first"]), rel=1e-3)


def test_where_a_call_took_no_time_single_calls_have_no_rate(tmp_path: Path) -> None:
    """Of recordings in whole microseconds, say: two calls of 4 us and one of 0."""
    shapes = shaped([[128, 64], [64, 32]])
    events = [
        e for at, us in ((10, 4), (30, 0), (50, 4)) for e in product("aten::mm", at, [us], **shapes)
    ]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    (row,) = ask_trace(trace, "matrix_calls").to_pylist()
    assert row["achieved_tflops"] == pytest.approx(3 * 2 * 128 * 64 * 32 / 8_000 / 1e3)
    of_calls = ("achieved_tflops_min", "achieved_tflops_p50", "achieved_tflops_max")
    assert [row[name] for name in of_calls] == [None] * 3
