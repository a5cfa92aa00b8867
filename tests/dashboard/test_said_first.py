"""What a page says before its pictures: filters that it is not under, clocks that differ."""

from pathlib import Path

import pytest

from htk.base.errors import MissingTable
from htk.dashboard.page import Visit
from htk.dashboard.pages import load_pages
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import UrlState
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, launch, of_rank, op, step, write


def runs_of(folder: Path, delay_us: int) -> Runs:
    """One rank, whose kernels start so long after their launches."""
    events = [step(0, 1, 40)]
    for k in range(3):
        events += [op("aten::mm", 2 + 10 * k, 3), launch(k + 1, 3 + 10 * k)]
        events += [kernel("gemm", 3 + 10 * k + delay_us, 5, k + 1)]
    write(folder / "rank0.json", *events, **of_rank(0, 1))
    return Runs([], trace=open_trace(folder, OpenOptions(cache=False)))


@pytest.mark.parametrize("path", ["", "idle"])
def test_a_page_of_all_the_time_says_that_names_are_not_filtered(path: str, tmp_path: Path) -> None:
    runs = runs_of(tmp_path, 2)
    page = load_pages()[path]
    filtered = Visit(runs, UrlState.from_address(f"/{path}", "?name=zzzz"))
    assert "name filter (zzzz) does not apply here" in str(page.layout(filtered))
    assert "does not apply" not in str(
        page.layout(Visit(runs, UrlState.from_address(f"/{path}", "")))
    )


def test_a_filter_that_leaves_no_kernel_is_the_reason_for_an_empty_panel(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, 2)
    roofline = load_pages()["kernels"].parts["roofline"]
    filtered = Visit(runs, UrlState.from_address("/kernels", "?name=zzzz"))
    assert "under the filters that are set" in str(roofline(filtered))
    assert "record_shapes=True" in str(roofline(Visit(runs, UrlState.from_address("/kernels", ""))))


@pytest.mark.parametrize("path", ["timeline", "idle"])
def test_delays_of_two_clocks_are_doubted_in_the_heading(path: str, tmp_path: Path) -> None:
    heading = load_pages()[path].parts["headline"]
    for name, delay_us in (("near", 2), ("far", 146_000)):
        (tmp_path / name).mkdir()
        visit = Visit(runs_of(tmp_path / name, delay_us), UrlState.from_address(f"/{path}", ""))
        said = str(heading(visit))
        assert ("ms of its launch" in said) == (name == "far")
        assert ("delays and queues of launches may not be" in said) == (name == "far")


def host_runs(folder: Path) -> Runs:
    """Six operators and a step of the host, and no GPU."""
    events = [step(0, 1, 40), *(op("aten::mm", 2 + 5 * k, 3) for k in range(5))]
    events.append(op("aten::add", 30, 2))
    write(folder / "rank0.json", *events, **of_rank(0, 1))
    return Runs([], trace=open_trace(folder, OpenOptions(cache=False)))


@pytest.mark.parametrize("part", ["roofline", "gap", "sequences"])
def test_a_part_without_its_table_keeps_its_heading(part: str, tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", kernel("gemm", 5, 5, 1), **of_rank(0, 1))
    runs = Runs([], trace=open_trace(tmp_path, OpenOptions(cache=False)))
    visit = Visit(runs, UrlState.from_address("/kernels", ""))
    heading, *said = load_pages()["kernels"].parts[part](visit).children
    assert heading.children.startswith(("Roofline", "How far", "Which sequences"))
    assert "No CPU operators were recorded" in str(said)


def test_the_host_alone_is_told_in_a_sentence(tmp_path: Path) -> None:
    visit = Visit(host_runs(tmp_path), UrlState.from_address("/timeline", ""))
    said = str(load_pages()["timeline"].parts["headline"](visit))
    # the last operator begins 30 µs in and takes 2; the step lasts from 1 to 41
    assert "The host ran 6 operators and 1 range in 40.0\\xa0µs" in said
    assert "No GPU work was recorded" in said


def test_operators_of_a_host_are_named_once(tmp_path: Path) -> None:
    visit = Visit(host_runs(tmp_path), UrlState.from_address("/operators", ""))
    heading = str(load_pages()["operators"].parts["headline"](visit)).replace("\\xa0", " ")
    assert "aten::mm takes most CPU time: 15.0 µs, in 5 calls" in heading
    assert "Then aten::add 2.00 µs." in heading


def test_a_what_if_without_a_gpu_is_refused_once(tmp_path: Path) -> None:
    visit = Visit(host_runs(tmp_path), UrlState.from_address("/whatif", ""))
    page = load_pages()["whatif"]
    assert not page.fits(visit.trace), "the menu does not offer it"
    with pytest.raises(MissingTable, match="no GPU activities"):
        page.layout(visit)


def test_communication_of_one_rank_of_many_has_its_sentence(tmp_path: Path) -> None:
    """A collective of 10 µs, beside nothing, in 30 from the first kernel to its end."""
    events = [launch(1, 1), kernel("gemm", 2, 20, 1), launch(2, 3)]
    events += [kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 22, 10, 2)]
    write(tmp_path / "rank0.json", *events, **of_rank(0, 8))
    visit = Visit(Runs([], trace=open_trace(tmp_path, OpenOptions(cache=False))), UrlState())
    heading = str(load_pages()["communication"].parts["headline"](visit)).replace("\\xa0", " ")
    assert "Exposed communication takes 33.3 % of the GPUs' time" in heading
    assert "100 % of it undetermined: wait or transfer" in heading
