"""Convolutions whose stride and padding were not recorded, by hand with ResNet-50's stem."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, launch, of_rank, op, write

IMAGES, WEIGHT, RESULT = [32, 3, 224, 224], [64, 3, 7, 7], [32, 64, 112, 112]
FLOPS = 2 * 32 * 64 * 112 * 112 * 3 * 7 * 7  # each result meets 3·7·7 weights


def roofline(folder: Path, *, backward: bool, name: str = "gemm", us: float = 900) -> Any:
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
    (row,) = ask(open_trace(path, OpenOptions(cache=False)), "roofline").to_pylist()
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
