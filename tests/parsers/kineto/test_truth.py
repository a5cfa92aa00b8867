"""Every column of every row is what plain json and Decimal read, on public traces."""

import gzip
import os
from pathlib import Path

SAMPLE = (
    "hta/trace_compare/base/base.json.gz",
    "hta/execution_trace/benchmark_simple_add_trace.json.gz",
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "hta/triton_example/triton_example.json.gz",
    "hta/call_stack/backward_thread.json",
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "hta/critical_path/cuda_event_sync_multi_stream/event_sync_trace.json.gz",
    "hta/critical_path/end_to_end/simple_add/output/overlaid_critical_path_trace.json.gz",
    "hta/mtia_inference_trace/mtia_inference_rank_0.json.gz",
    "hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz",
    "dlrm_8rank/worker5_step_12.1694128201549.pt.trace.json.gz",
    "tracelens/torch_compile_triton/trace.json.gz",
    "tracelens/mi210/gpu_only_trace/gpu_only_trace.json.gz",
    "tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz",
)


def traces(shared: Path) -> list[Path]:
    folder = shared / "traces"
    if os.environ.get("HTK_ALL_TRACES") != "1":
        return [folder / name for name in SAMPLE]
    files = sorted(f for f in folder.rglob("*.json*") if f.is_file())
    return [f for f in files if b'"traceEvents"' in content(f)[: 1 << 30]]


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_every_cell_is_what_plain_json_reads(shared, read, truth):
    wrong = {}
    for path in traces(shared):
        text = content(path)
        expected, raw = truth.read(text), read(text)
        found = truth.differences(expected, raw)
        if found or raw.header != expected.header or not raw.events_seen or raw.truncated:
            wrong[path.name] = found[:3]
        assert set(raw.issue_counts) <= {"mistyped_value"}, path
    assert wrong == {}


def test_a_file_without_events_is_no_trace(shared, read):
    raw = read(content(shared / "traces/hta/execution_trace/benchmark_simple_add_et.json.gz"))
    assert not raw.events_seen
    assert raw.rows == 0
