"""A question from a function: asked as any other, and refused where it cannot be one."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import htk
from htk.analyses import ANALYSES
from htk.base.errors import UsageError


@pytest.fixture(autouse=True)
def _menu() -> Iterator[None]:
    """The menu is as it was after each test."""
    held = dict(ANALYSES)
    yield
    ANALYSES.clear()
    ANALYSES.update(held)


def count_kernels(kernels: pa.Table, *, times: int = 1) -> object:
    """How many kernels are there?"""
    return [{"count": times * kernels.num_rows}]


def test_a_function_is_asked_as_any_question() -> None:
    assert htk.question(count_kernels) is count_kernels
    trace = htk.open("sample")
    assert trace.count_kernels(times=2).to_pylist() == [{"count": 3616}]
    assert trace.sel(ranks=0).ask("count_kernels").to_pylist() == [{"count": 904}]
    assert htk.catalog()["count_kernels"] == "How many kernels are there?"
    with pytest.raises(UsageError, match="count_kernels has no option 'time'"):
        trace.count_kernels(time=2)


def test_run_takes_the_function_itself() -> None:
    assert htk.run("sample", count_kernels, times=3).to_pylist() == [{"count": 5424}]
    assert htk.run("sample", count_kernels).analysis.name == "count_kernels"


def test_any_table_is_an_answer() -> None:
    def as_frame(kernels: pa.Table) -> object:
        return kernels.select(["name", "start_ns"]).to_pandas().head(2)

    def as_arrow(kernels: pa.Table) -> object:
        return kernels.slice(0, 3)

    def as_number(kernels: pa.Table) -> object:
        return kernels.num_rows

    assert htk.run("sample", as_frame).shape == (2, 2)
    assert htk.run("sample", as_arrow).shape[0] == 3
    with pytest.raises(UsageError, match="as_number answered with a int, not with a table"):
        htk.run("sample", as_number)


def test_what_cannot_be_a_question_says_why() -> None:
    def kernel_top(kernels: pa.Table) -> object:
        return kernels

    def slowest(kernels: pa.Table, n: int) -> object:
        return kernels.slice(0, n)

    with pytest.raises(UsageError, match="htk has a question 'kernel_top'"):
        htk.question(kernel_top)
    with pytest.raises(UsageError, match=r"slowest reads 'n', which is no table .* put \* before"):
        htk.question(slowest)
