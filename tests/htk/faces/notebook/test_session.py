"""A trace in a notebook."""

import inspect
import pydoc
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.base.errors import MissingTable, UsageError
from htk.faces.notebook.session import Session
from tests.kineto_file import kernel, of_rank, write


@pytest.fixture
def trace(tmp_path: Path) -> Session:
    path = write(tmp_path / "<b>.json", kernel("<i>gemm", 1, 3), kernel("add", 5, 1), **of_rank(0))
    return htk.open(path, cache=False)


def test_every_question_is_a_method(trace: Session) -> None:
    assert set(htk.catalog()) <= set(dir(trace))
    assert trace.kernel_top(n=1).to_pylist()[0]["total_ns"] == 3000
    options = [*inspect.signature(trace.kernel_top).parameters]
    assert options == ["by", "source_depth", "n", "sort_by", "per"]
    shown = pydoc.plain(pydoc.render_doc(trace.kernel_top))
    assert "kernel_top(*, by: Literal['kernel'," in shown and "Which kernels cost most" in shown
    assert "        sort_by: What to sort rows by. ('total')" in shown
    assert "        total_ns: Sum of durations." in shown


def test_what_is_no_question_says_so(trace: Session) -> None:
    with pytest.raises(AttributeError, match="did you mean kernel_top"):
        _ = trace.kernel_bottom
    with pytest.raises(AttributeError, match=r"htk\.catalog"):
        _ = trace.wholly_unlike
    with pytest.raises(UsageError, match="no option 'm'"):
        trace.kernel_top(m=1)


def test_narrowing_takes_what_is_at_hand(trace: Session) -> None:
    assert trace.sel(ranks="0..3").ranks == [0] == trace.sel(ranks=0).ranks
    with pytest.raises(MissingTable, match=r"ranks 7 \(of 0\)"):
        trace.sel(ranks=[7])
    assert isinstance(trace.sel(steps=1), Session)


def test_a_notebook_sees_who_how_long_and_the_verdict() -> None:
    shown = htk.open("sample")._repr_html_()
    for text in ("0..1 of 2", "10..1", "A100", "2 ranks, step ", "compute ", "coverage: 2 of 2"):
        assert text in shown, text
    assert "2 files</summary>" in shown


def test_what_the_commands_answer_is_there_too(trace: Session) -> None:
    sample = htk.open("sample")
    assert "step" in sample.summary().coverage["verdict"]
    assert {"files", "recorded"} <= {row["section"] for row in sample.doctor().to_pylist()}
    assert {row["change"] for row in sample.diff(sample).to_pylist()} == {"same"}


def test_tables_sort_and_page_without_a_server() -> None:
    shown = htk.open("sample").kernel_top(n=10)._repr_html_()
    assert shown.count("<tr>") == 12 and "htkTable" in shown and "data-v=" in shown
    assert "http" not in shown


def test_in_a_notebook_a_result_is_returned_as_text_not_shown(
    trace: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert "gemm" in repr(trace.kernel_top())
    assert capsys.readouterr().out == ""


def test_narrowing_keeps_the_methods(trace: Session) -> None:
    assert trace.sel(from_ns=2000).kernel_top().to_pylist()[0]["name"] == "add"


def test_answers_go_where_people_work(trace: Session) -> None:
    answer = trace.kernel_top()
    assert answer.to_pandas()["total_ns"].tolist() == [3000, 1000]
    assert answer.to_arrow().num_rows == len(answer) == 2
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(answer)["total_ns"].to_list() == [3000, 1000]
    assert answer.plot().data[0].x[0] == pytest.approx(3.0)  # µs


def test_what_is_shown_is_escaped(trace: Session) -> None:
    assert "<i>" not in trace.kernel_top(n=10)._repr_html_()
    assert "&lt;i&gt;gemm" in trace.kernel_top(n=10)._repr_html_()
    assert "<b>.json" not in trace._repr_html_()
    assert "1 file" in repr(trace) and "gemm" in repr(trace.kernel_top())


def test_the_card_of_logged_operations_names_ranks_and_steps() -> None:
    rows = Path(__file__).parents[4] / "sample_traces/operation_rows/slow_worker.parquet"
    trace = htk.open(rows)
    logged = trace.tables["job_operations"]
    card = trace._repr_html_()
    for name, column in (("ranks", "rank"), ("steps", "step")):
        values = logged[column].unique().to_pylist()
        assert f"{name}</span><br><b>{min(values)}..{max(values)}</b>" in card
    assert f"of {len(logged['step'].unique())} steps" in card and "no steps" not in card
    assert "<br>Stragglers: " in card


def test_a_misspelt_choice_is_named_with_the_right_word() -> None:
    misspelt: dict[str, Any] = {"rank": 0}
    with pytest.raises(UsageError, match=r"sel\(\) has no 'rank'; did you mean 'ranks'\?"):
        htk.open("sample").sel(**misspelt)
