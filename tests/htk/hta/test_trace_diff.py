"""HTA's TraceDiff: a hand-worked pair, and what HTA itself answers on its traces."""

from pathlib import Path

import pytest

import htk
from htk.base.errors import UsageError
from htk.hta import DeviceType, LabeledTrace, TraceDiff
from tests.hta_truth import hta_truth
from tests.kineto_file import kernel, launch, of_rank, op, step, write


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """The first step of the second trace lost a copy of mm, got relu; its gemm takes 2 us more."""
    for name, ops, time in (("a", ["mm", "mm", "add"], 3), ("b", ["mm", "add", "relu"], 5)):
        events = [step(4, 0, 40), step(5, 40, 40)]
        for position, operator in enumerate(ops):
            events.append(op(f"aten::{operator}", 2 + 10 * position, 4))
        events += [launch(1, 3, 1), kernel("gemm<int>(float)", 8, time, 1)]
        events += [op("aten::late", 50, 2)]
        folder = tmp_path / name
        folder.mkdir()
        write(folder / "rank3.json", *events, **of_rank(3, 4))
    return tmp_path / "a", tmp_path / "b"


def test_counts_and_times_by_name(pair: tuple[Path, Path]) -> None:
    a, b = (
        LabeledTrace(label, trace_dir=str(path)) for label, path in zip("ab", pair, strict=True)
    )
    assert (a.ranks(), a.iterations()) == ([3], [4, 5])
    compared = TraceDiff.compare_traces(a, b)
    assert compared.loc["aten::mm"].tolist() == [2, 8.0, 1, 4.0, -1, -4.0, "-"]
    assert compared.loc["aten::relu"].tolist() == [0, 0.0, 1, 4.0, 1, 4.0, "+"]
    assert compared.loc["gemm<int>(float)", "diff_duration"] == 2.0
    assert "aten::late" not in compared.index
    short = TraceDiff.compare_traces(
        a, b, 3, [3], 4, [4, 5], device_type=DeviceType.GPU, use_short_name=True
    )
    assert short.index.tolist() == ["gemm"]
    changes = TraceDiff.ops_diff(str(pair[0]), htk.open(pair[1]), device_type=DeviceType.CPU)
    assert changes == {
        "added": ["aten::relu"],
        "deleted": [],
        "increased": [],
        "decreased": ["aten::mm"],
        "unchanged": ["ProfilerStep#4", "aten::add", "cudaLaunchKernel"],
    }


def test_what_is_not_in_the_trace_is_named(pair: tuple[Path, Path]) -> None:
    trace = LabeledTrace(t=htk.open(pair[0]))
    with pytest.raises(UsageError, match=r"rank=7: the trace has \[3\]"):
        trace.extract_ops(7)
    with pytest.raises(UsageError, match=r"iteration=9: the trace has \[4, 5\]"):
        trace.extract_ops(3, 9)
    with pytest.raises(UsageError, match="trace_dir"):
        LabeledTrace("nothing")


def test_what_hta_answers_on_its_traces(shared: Path) -> None:
    truth = hta_truth(shared)
    folders = [str(shared / "traces/hta/trace_diff" / name) for name in ("control", "test")]
    first, second = (LabeledTrace(f"t{k}", trace_dir=f) for k, f in enumerate(folders))
    for device in DeviceType:
        right = truth["hta_trace_diff_default_args"][device.name]
        compared = TraceDiff.compare_traces(first, second, device_type=device)
        assert len(compared) == right["rows"]
        assert compared["counts_change_categories"].value_counts().to_dict() == right["change"]
        assert compared["t0_counts"].sum() == right["sum_control_counts"]
        assert compared["t1_total_duration"].sum() == right["sum_test_dur"]
        sizes = {
            change: len(names)
            for change, names in TraceDiff.ops_diff(first, second, device_type=device).items()
        }
        assert sizes == right["ops_diff_sizes"]
