"""What was not recorded is said in words, with how the recording's own tool would record it."""

import pickle
from pathlib import Path

import pytest

import htk
from htk.base.core.recording_hints import describe_contents, describe_recording, find_recipe
from htk.base.errors import MissingTable, UsageError
from htk.base.schema import TABLES
from tests.kineto_file import kernel, of_rank, op, write

SAMPLES = Path(__file__).parents[4] / "sample_traces"


@pytest.mark.parametrize(
    ("sample", "question", "text"),
    [
        ("nsight", "memory_peaks", "no memory events were recorded; only torch.profiler"),
        ("rocprof_json", "op_breakdown", "no CPU operators were recorded; only torch.profiler"),
        ("xplane", "memory_timeline", "no memory events were recorded; only torch.profiler"),
        ("xplane", "module_breakdown", "no operator has an nn.Module; only torch.profiler"),
        ("nsight", "module_breakdown", "no operator has an nn.Module; only torch.profiler"),
    ],
)
def test_advice_fits_the_tool_that_recorded(sample: str, question: str, text: str) -> None:
    trace = htk.open(SAMPLES / sample)
    with pytest.raises(MissingTable) as caught:
        getattr(trace, question)()
    assert text in str(caught.value)
    rows = [str(row) for row in trace.doctor().to_pylist()]
    assert not any("profile_memory=True" in row for row in rows)


def test_columns_are_no_tables_that_a_choice_could_empty(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", op("aten::mm", 0, 5), kernel("gemm", 6, 3), **of_rank(0))
    trace = htk.open(path, cache=False).sel(to_ns=8_000)
    with pytest.raises(MissingTable, match="record_shapes=True"):
        trace.flops()
    with pytest.raises(MissingTable, match="with_modules=True"):
        trace.module_breakdown()


def test_analyses_that_see_tables_alone_get_the_advice_too(tmp_path: Path) -> None:
    trace = htk.open(write(tmp_path / "a.json", kernel("gemm", 1, 3), **of_rank(0)), cache=False)
    with pytest.raises(MissingTable) as caught:
        trace.flops()
    assert "profile with ProfilerActivity.CPU on" in str(caught.value)
    assert caught.value.lacks == "cpu_ops"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.lacks) == (str(caught.value), "cpu_ops")


def test_a_choice_that_holds_nothing_is_not_called_unrecorded(tmp_path: Path) -> None:
    write(tmp_path / "a.json", op("aten::mm", 0, 5), kernel("gemm", 1, 3), **of_rank(0, 2))
    write(tmp_path / "b.json", op("aten::mm", 0, 5), **of_rank(1, 2))
    with pytest.raises(MissingTable) as caught:
        htk.open(tmp_path, cache=False).sel(ranks=1).kernel_top()
    assert "no GPU activities within ranks 1" in str(caught.value)
    assert "profile" not in str(caught.value)


def test_formats_that_disagree_get_the_general_advice() -> None:
    assert find_recipe("kernels", {"kineto", "nsight"}) == find_recipe("kernels")
    assert "nsys" in find_recipe("kernels", {"nsight"})
    assert describe_recording("memory") == "memory events: profile with profile_memory=True"


def test_no_message_names_a_table() -> None:
    assert not [name for name in TABLES if "_" in describe_contents(name)]


@pytest.mark.parametrize("nothing", [None, 7, [None]])
def test_no_path_is_said_to_be_none(nothing: object) -> None:
    with pytest.raises(UsageError, match="a path or a list of paths is expected"):
        htk.open(nothing)  # type: ignore[arg-type]


def test_steps_of_the_host_are_told_where_no_gpu_was_recorded(shared: Path) -> None:
    trace = htk.open(shared / "traces/hta/cpu_only")
    assert len(trace.step_times()) > 0
    rows = {row["item"]: row for row in trace.doctor().to_pylist() if row["section"] == "missing"}
    assert "steps of the host were recorded: htk step-times" in rows["step_windows"]["advice"]
    assert "ProfilerActivity.CUDA" in rows["step_windows"]["advice"]
