"""Convolutions whose stride and padding were not recorded, by hand with ResNet-50's stem."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.quantities.measures.op_work import BEYOND_PEAK
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, launch, of_rank, op, write

IMAGES, WEIGHT, RESULT = [32, 3, 224, 224], [64, 3, 7, 7], [32, 64, 112, 112]
GPUS = ("h100", "mi300")
FLOPS = 2 * 32 * 64 * 112 * 112 * 3 * 7 * 7  # each result meets 3·7·7 weights


def roofline(folder: Path, **facts: Any) -> Any:
    return the_convolution("roofline", folder, **facts)


def the_convolution(
    question: str, folder: Path, *, backward: bool, name: str = "gemm", us: float = 900
) -> Any:
    shapes = {"Input Dims": [IMAGES, WEIGHT, []], "Input type": ["float", "float", ""]}
    node = {"Input Dims": [RESULT], "Input type": ["float"], "Fwd thread id": 1}
    events = [
        op("aten::_convolution", 0, 30, **shapes, **{"Sequence number": 5}),
        op("aten::cudnn_convolution", 2, 20, **shapes, **{"Sequence number": 5}),
        launch(1, 4),
        kernel(name, 10, us, 1),
    ]
    if backward:
        events.append(op("CudnnConvolutionBackward", 50, 9, 2, **node, **{"Sequence number": 5}))
    gpu = {"id": 0, "name": "Tesla V100-SXM2-16GB", "totalGlobalMem": 16_945_512_448, "numSms": 80}
    path = write(folder / "t.json", *events, **of_rank(0), deviceProperties=[gpu])
    (row,) = ask_trace(open_trace(path, OpenOptions(cache=False)), question).to_pylist()
    return row


def test_the_gradient_tells_the_size_of_the_result(tmp_path: Path) -> None:
    row = roofline(tmp_path, backward=True)
    assert row["flops_per_call"] == FLOPS
    assert row["roofline_pct"] == pytest.approx(100 * FLOPS / 15.7e12 / 900e-6)


def test_without_it_nothing_is_guessed(tmp_path: Path) -> None:
    row = roofline(tmp_path, backward=False)
    assert (row["flops_per_call"], row["roofline_pct"]) == (None, None)
    assert row["note"] == "stride and padding not recorded"


def test_more_operations_than_the_gpu_can_do_are_no_number(tmp_path: Path) -> None:
    row = roofline(tmp_path, backward=True, us=100)
    assert (row["achieved_tflops"], row["roofline_pct"]) == (None, None)
    assert "compute peak" in row["note"]


def test_winograd_does_fewer_operations_than_counted(tmp_path: Path) -> None:
    row = roofline(tmp_path, backward=True, name="volta_scudnn_winograd_128x128_ldg1_ldg4")
    assert (row["flops_per_call"], row["roofline_pct"]) == (None, None)
    assert "Winograd" in row["note"]


def test_rates_by_shape_have_the_same_bounds(tmp_path: Path) -> None:
    winograd = "volta_scudnn_winograd_128x128_ldg1_ldg4"
    whole = the_convolution("matrix_calls", tmp_path, backward=True)
    assert whole["achieved_tflops"] == whole["achieved_tflops_max"] == pytest.approx(FLOPS / 9e8)
    assert whole["note"] is None
    fewer = the_convolution("matrix_calls", tmp_path, backward=True, name=winograd)
    assert (fewer["flops_per_call"], fewer["achieved_tflops"]) == (None, None)
    assert "Winograd" in fewer["note"]
    fast = the_convolution("matrix_calls", tmp_path, backward=True, us=100)
    assert (fast["achieved_tflops"], fast["achieved_tflops_max"]) == (None, None)
    assert fast["flops_per_call"] == FLOPS and "compute peak" in fast["note"]


def test_no_recording_has_a_row_above_its_compute_roof(shared: Path) -> None:
    """Such a row proves an error: of V100, A100, H100, B200 and MI300X none stands there."""
    files = [
        *(f"tracelens/{gpu}/Falconsai_nsfw_image_detection__1016002.json.gz" for gpu in GPUS),
        *("tracelens/b200/eager_trace.json.gz", "tracelens/mi300/resnet_act_checkpoint.json.gz"),
        "hta/trace_diff/control/control.json.gz",
    ]
    for file in files:
        trace = open_trace(shared / "traces" / file)
        rows = ask_trace(trace, "roofline", n=0).to_pylist()
        assert any(row["roofline_pct"] for row in rows), file
        assert [row for row in rows if row["note"] == BEYOND_PEAK] == [], file
        for row in ask_trace(trace, "flops").to_pylist():
            assert row["hfu_pct"] is None or row["mfu_pct"] <= row["hfu_pct"] <= 100, file
