"""Scrubbed traces: nothing of whose they are, everything of where the time went."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import htk
from htk.cli.commands.scrub import command
from htk.export.scrub import Names
from htk.names.kinds import kind_of
from tests.kineto_file import kernel, launch, of_rank, op, span, step, write

SECRET = "zephyr"


def _scrub(*args: str) -> None:
    outcome = CliRunner().invoke(command, [*args], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output


def _secret_trace(path: Path, rank: int) -> Path:
    stack = f"/home/{SECRET}/train.py(7): {SECRET}\n/home/{SECRET}/run.py(1): main"
    arguments: dict[str, Any] = {
        "Input Dims": [[12288, 77], [1]],
        "Input Strides": [[77, 1], [1]],
        "Concrete Inputs": ["", SECRET],
        "Input type": ["c10::BFloat16", f"{SECRET}::Type"],
        "Call stack": stack,
        "Module Hierarchy": f"{SECRET}(Net).layer",
        f"{SECRET} key": 1,
        "extra": {"deep": [{"a": f"x {SECRET}"}, 2]},
        "text in text": json.dumps({"who": SECRET}),
    }
    function = {
        "ph": "X",
        "cat": "python_function",
        "pid": 100,
        "tid": 1,
        "ts": 0.5,
        "dur": 9,
        "args": {"Python id": 1, "Python parent id": None},
    }
    label = {"name": "process_name", "ph": "M", "pid": 1, "ts": 0, "args": {"name": SECRET}}
    events = (
        step(3, 0, 10),
        op(f"{SECRET}::op", 1, 3, **arguments),
        op("aten::addmm", 1.125, 2),
        op("autograd::engine::evaluate_function: AddmmBackward0", 4, 1),
        op(f"autograd::engine::evaluate_function: {SECRET}Backward", 5, 1),
        launch(1, 2),
        kernel(f"ampere_sgemm_{SECRET}", 3.001, 3, 1),
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", 4, 4, stream=20),
        span(f"## {SECRET} ##", 1, 2),
        span(f"Optimizer.step#{SECRET}.step", 1, 2),
        span("Optimizer.step#AdamW.step", 1, 2),
        {**function, "name": f"/home/{SECRET}/train.py(7): go"},
        {**function, "name": f"nn.Module: {SECRET}_0"},
        {**label, "args": {"name": SECRET}},
        {**label, "cat": f"{SECRET} things", "ph": "i", "s": "g"},
    )
    header: dict[str, Any] = {**of_rank(rank, 2), "traceName": f"/{SECRET}/a", "host": SECRET}
    header["distributedInfo"]["pg_config"] = [{"pg_name": SECRET, "ranks": [0, 1]}]
    return write(path, *events, **header)


def _text(folder: Path) -> str:
    return "".join(gzip.decompress(f.read_bytes()).decode() for f in sorted(folder.iterdir()))


@pytest.fixture
def scrubbed(tmp_path: Path) -> Path:
    for rank in (0, 1):
        _secret_trace(tmp_path / f"in/{SECRET}_rank{rank}.json", rank)
    _scrub(str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--no-cache")
    return tmp_path / "out"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()


def test_nothing_secret_is_left(scrubbed: Path) -> None:
    text = _text(scrubbed)
    assert SECRET not in text.lower() and "/home" not in text and "train.py" not in text
    assert "12288" not in text and "77" not in text
    assert not any(SECRET in file.name for file in scrubbed.iterdir())


def test_what_is_public_stays(scrubbed: Path) -> None:
    text = _text(scrubbed)
    for kept in ("aten::addmm", "AddmmBackward0", "ncclDevKernel_AllReduce", "ProfilerStep#3"):
        assert kept in text
    assert "Optimizer.step#AdamW.step" in text and "c10::BFloat16" in text


def test_ranks_share_names_and_times_stay(scrubbed: Path) -> None:
    first, second = (
        json.loads(gzip.decompress(f.read_bytes()))["traceEvents"]
        for f in sorted(scrubbed.iterdir())
    )
    assert [e["name"] for e in first] == [e["name"] for e in second]
    assert '"ts": 3.001' in _text(scrubbed)


def test_the_sample_scrubbed_answers_the_same(tmp_path: Path) -> None:
    _scrub("sample", "-o", str(tmp_path / "out"))
    whole, copy = htk.open("sample"), htk.open(tmp_path / "out")
    for name in ("time_breakdown", "kernel_kinds", "comm_wait", "step_times", "idle_breakdown"):
        assert copy.ask(name).to_pylist() == whole.ask(name).to_pylist(), name
    kinds = ["family", "count", "total_ns"]
    a, b = (t.kernel_families().to_arrow().select(kinds).to_pylist() for t in (whole, copy))
    assert a == b


@pytest.mark.parametrize(
    "name",
    [
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "ampere_sgemm_32x128_tn",
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128> >(flash::Flash_fwd_params)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::mine>(int)",
        "void at::native::reduce_kernel<512, 1, float>(float)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(float)",
        "triton_poi_fused_add_mul_3",
        "something_of_mine",
    ],
)
def test_a_kernels_new_name_tells_its_family(name: str) -> None:
    new = Names().event(name, "kernel")
    was, now = kind_of(name, "kernel"), kind_of(new, "kernel")
    assert new != name
    assert (now.kind, now.family, now.tensor_core) == (was.kind, was.family, was.tensor_core)
