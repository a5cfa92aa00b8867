"""Public traces: `htk verify` finds nothing. Small ones each time, large ones by `make nightly`."""

from pathlib import Path

import pytest

from htk.traces.trace.opening import OpenOptions
from htk.verdicts.verify.outcome import DIFFERS, OK, list_outcomes
from htk.verdicts.verify.subject import Subject
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[4] / "sample_traces"
SMALL = (
    "hta/amd_trace",
    "hta/call_stack",
    "hta/cpu_only",
    "hta/critical_path/alexnet",
    "hta/critical_path/cuda_event_sync",
    "hta/critical_path/cuda_event_sync_multi_stream",
    "hta/critical_path/simple_add",
    "hta/cupti_profiler",
    "hta/execution_trace",
    "hta/rank_non_gpu",
    "hta/trace_compare/base",
    "hta/trace_compare/test",
    "hta/trace_file_list",
    "hta/triton_example",
    "tracelens/h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz",
    "tracelens/mi210/gpu_only_trace",
    "tracelens/mi300/Falconsai_nsfw_image_detection__1016002.json.gz",
    "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/torch_compile_triton/trace.json.gz",
)
LARGE = (
    "dlrm_8rank",
    "hta/mtia_inference_trace",
    "hta/nccl_parser_config",
    "hta/ns_resolution_trace",
    "hta/timeline_analysis",
    "hta/trace_diff/control",
    "hta/trace_diff/test",
    "hta/trace_filter",
    "tracelens/b200/eager_trace.json.gz",
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/h100/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
    "tracelens/inference/sglang_decode",
    "tracelens/inference/sglang_decode/capture_traces",
    "tracelens/inference/vllm_prefilldecode_piecewise/capture_traces",
    "tracelens/inference/vllm_prefilldecode_piecewise/graph_execution.json.gz",
    "tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/mi300/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
    "tracelens/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz",
    "tracelens/mi300/resnet_act_checkpoint.json.gz",
)


def check(path: Path) -> None:
    results = list(
        list_outcomes(Subject(str(path), OpenOptions(rank=0 if path.is_file() else None)))
    )
    assert {o.check.name: o.finding for o in results if o.state == DIFFERS} == {}
    assert any(o.state == OK and o.check.name == "events" for o in results)


@pytest.mark.parametrize("name", thinned(SMALL, 3))
def test_a_small_trace_is_clean(name: str, shared: Path) -> None:
    check(shared / "traces" / name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGE)
def test_a_large_trace_is_clean(name: str, shared: Path) -> None:
    check(shared / "traces" / name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["simulated/llama2-7b"])
def test_a_large_sample_is_clean(name: str) -> None:
    check(SAMPLES / name)
