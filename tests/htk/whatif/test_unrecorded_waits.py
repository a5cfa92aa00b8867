"""Waits for what was not recorded, taken out of a server's recording."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.base.errors import UsageError
from htk.base.schema import DERIVED, TABLES
from htk.traces.trace.opening import open_trace
from htk.whatif.api import whatif
from htk.whatif.unrecorded_waits import without_unrecorded_waits
from tests.server_recording import BUSY_US, KERNELS, LAYERS, write_server
from tests.tables import make

MS = 1_000_000
RANGE = "execute_context_0(0)_generation_8(sq8sk8192)"


def tables(**more: list[dict[str, Any]]) -> dict[str, pa.Table]:
    rows = {
        "annotations": [
            {"name": RANGE, "on_gpu": False, "start_ns": 0, "end_ns": 30 * MS, "thread": "1"}
        ],
        "rank_windows": [{"start_ns": 0, "end_ns": 40 * MS}],
        "kernels": [
            {"name": "before", "start_ns": 0, "end_ns": MS},
            {"name": "between", "start_ns": 12 * MS, "end_ns": 13 * MS},
            {"name": "after", "start_ns": 38 * MS, "end_ns": 40 * MS},
        ],
        "kernel_links": [{"launch_start_ns": n * MS} for n in range(3)],
        "launches": [{"name": "hipMemcpyWithStream", "start_ns": MS // 2, "end_ns": 12 * MS}],
        "idle_causes": [
            {"cause": "unrecorded_gpu_work_suspected", "start_ns": MS, "end_ns": 11 * MS},
            {"cause": "host_python", "start_ns": 11 * MS, "end_ns": 12 * MS},
            {"cause": "unrecorded_gpu_work_suspected", "start_ns": 20 * MS, "end_ns": 25 * MS},
            {"cause": "unrecorded_gpu_work_suspected", "start_ns": 30 * MS, "end_ns": 30 * MS + 9},
        ],
        **more,
    }
    empty = {n: schema.empty_table() for n, schema in {**TABLES, **DERIVED}.items()}
    return empty | {name: make(name, each) for name, each in rows.items()}


def times(moved: Any, name: str) -> list[tuple[float, float]]:
    return [(r["start_ns"] / MS, r["end_ns"] / MS) for r in moved[name].to_pylist()]


def test_what_comes_after_a_wait_moves_up_by_it() -> None:
    moved, waited = without_unrecorded_waits(tables())
    assert waited == 15 * MS  # nine nanoseconds matter to nobody
    assert times(moved, "kernels") == [(0, 1), (2, 3), (23, 25)]
    assert times(moved, "launches") == [(0.5, 2)]  # the call that waited
    assert times(moved, "rank_windows") == [(0, 25)]
    assert times(moved, "annotations") == [(0, 15)]
    assert moved["idle_causes"].num_rows == 4 and set(moved) == set(tables())


@pytest.mark.parametrize(
    "other",
    [
        {"annotations": [{"name": "train", "on_gpu": False, "start_ns": 0, "end_ns": 9}]},
        {"step_windows": [{"step": 1, "start_ns": 0, "end_ns": 40 * MS}]},
        {"rank_windows": [{"rank": r, "start_ns": 0, "end_ns": 40 * MS} for r in (0, 1)]},
        {"idle_causes": []},
    ],
)
def test_other_recordings_stay_as_they_are(other: dict[str, list[dict[str, Any]]]) -> None:
    recording = tables(**other)
    assert without_unrecorded_waits(recording) == (recording, 0)


def test_a_small_server_end_to_end(tmp_path: Path) -> None:
    asked = whatif(open_trace(write_server(tmp_path / "rank0.json")))
    (row,) = asked.change("serving", "requests=1x").economy(price=3.6).run().to_pylist()
    assert row["verdict"].startswith("indicative") and "40.0 ms of waiting" in row["verdict"]
    # From the first activity: 25 µs of its own, of the wait 35 that no call explains, the graph.
    assert BUSY_US * 1000 < row["tpot_ns"] < 1.05 * BUSY_US * 1000
    assert row["tokens_per_s"] == pytest.approx(32e9 / row["tpot_ns"], rel=1e-6)
    assert row["cost_per_million_tokens"] == pytest.approx(1000 / row["tokens_per_s"])
    products = LAYERS * 1000 * sum(us for name, us in KERNELS if "gemm" in name)
    (narrow,) = asked.change("serving", "weights=int8").run().to_pylist()
    saved = row["tpot_ns"] - narrow["tpot_ns"]
    # Computing for 32 requests takes a fifth of reading 16 bits (A100: 1,600 GB/s, 0.92 of 271.2
    # TFLOP/s), and the two hide each other in part; kernels of 2.5 µs get no shorter.
    computing = 32 * 1600 / (0.92 * 271_200)
    left = math.hypot(1 / 2, computing) / math.hypot(1, computing)
    assert saved == pytest.approx((products - 4 * LAYERS * 2500) * (1 - left), rel=0.01)
    (shared_by_two,) = asked.change("serving", "tp=2,model=llama3-8b").run().to_pylist()
    assert shared_by_two["exposed_comm_ns"] > 0
    assert shared_by_two["tokens_per_s_per_gpu"] == pytest.approx(shared_by_two["tokens_per_s"] / 2)
    (moved,) = asked.change("hardware", "h100").run().to_pylist()
    assert moved["tpot_ns"] == pytest.approx(row["tpot_ns"] * 2000 / 3350, rel=0.05)


def test_two_recordings_of_an_iteration_tell_what_one_does(tmp_path: Path) -> None:
    """The second is replayed; tokens a second are of its iteration alone, not of both."""
    alone = write_server(tmp_path / "alone" / "rank0.json")
    write_server(tmp_path / "both" / "later.json")
    earlier = json.loads(alone.read_text())
    for event in earlier["traceEvents"]:
        event["ts"] -= 60_000_000
    (tmp_path / "both" / "earlier.json").write_text(json.dumps(earlier))
    folders = (alone, tmp_path / "both")
    rows = [whatif(open_trace(folder)).change("serving", "requests=2x").run() for folder in folders]
    for column in ("tpot_ns", "tokens_per_s", "measured_step_time_ns"):
        lone, both = (row.table[column][0].as_py() for row in rows)
        assert both == pytest.approx(lone, rel=1e-6), column


def served(shared: Path, name: str) -> Path:
    return shared / "traces/tracelens/inference" / name


def test_an_iteration_of_sglang_is_as_long_as_its_gpu_worked(shared: Path, tmp_path: Path) -> None:
    """464 of 474 ms are a blocking copy while nothing recorded runs."""
    trace = open_trace(served(shared, "sglang_decode/sglang_Qwen3-8B_decode.json.gz"))
    asked = whatif(trace).change("serving", "requests=1x")
    (row,) = asked.run().to_pylist()
    assert row["verdict"].startswith("indicative")
    assert "463 ms of waiting for unrecorded work are left out" in row["verdict"]
    assert row["measured_step_time_ns"] == pytest.approx(10.5 * MS, rel=0.01)
    busy = 9.77 * MS
    assert busy < row["tpot_ns"] < 1.1 * busy
    assert row["tokens_per_s"] == pytest.approx(32e9 / row["tpot_ns"], rel=1e-6)
    (double,) = whatif(trace).change("serving", "requests=2x").run().to_pylist()
    assert 1 < double["tpot_ns"] / row["tpot_ns"] < 2
    assert double["tokens_per_s"] > 1.3 * row["tokens_per_s"]
    with pytest.raises(UsageError, match="no trace of it can be written"):
        asked.write(tmp_path)


def test_a_mixed_iteration_of_vllm_answers(shared: Path) -> None:
    trace = open_trace(served(shared, "vllm_prefilldecode_piecewise/graph_execution.json.gz"))
    half, same, more = (
        whatif(trace).change("serving", value).run().to_pylist()[0]
        for value in ("prefill=0.5x", "requests=1x", "requests=4x")
    )
    assert same["verdict"].startswith("indicative") and same["change_pct"] == 0
    assert same["tpot_ns"] == same["step_time_ns"] == pytest.approx(156.5 * MS, rel=0.01)
    assert half["tpot_ns"] == pytest.approx(same["tpot_ns"] / 2, rel=0.05)  # its prompts are all
    assert 1 < more["tpot_ns"] / same["tpot_ns"] < 1.1


def test_captures_of_graphs_serve_nobody(shared: Path) -> None:
    folder = served(shared, "vllm_prefilldecode_piecewise/capture_traces")
    with pytest.raises(UsageError, match="captures its graphs"):
        whatif(open_trace(folder)).change("serving", "requests=2x").run()
