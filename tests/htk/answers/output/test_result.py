"""An answer in pandas, Polars, Arrow and pickle: a column has one type, whatever the file."""

import io
import pickle
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import htk
from htk.analyses import ANALYSES, find_analysis
from htk.answers.output.render import to_bytes
from htk.answers.output.result import Result
from htk.base.core.label import Label
from htk.base.errors import HtkError
from htk.faces.notebook.session import Session

ROOT = Path(__file__).parents[4]
BIG = (1 << 53) + 1  # a float cannot hold it


@pytest.fixture
def answer() -> Result:
    table = pa.table({"event": pa.array([BIG, None]), "name": ["a", None], "share": [0.5, None]})
    return Result(Label("question", "What?"), table, {"ranks": [0]})


def test_what_pandas_and_polars_users_try_first(answer: Result) -> None:
    assert answer.columns == ["event", "name", "share"]
    assert answer.shape == (2, 3)
    assert answer.schema.field("event").type == pa.int64()
    assert answer["event"].to_pylist() == [BIG, None]
    assert [row["name"] for row in answer] == ["a", None]
    assert answer.head(1).to_pylist() == [{"event": BIG, "name": "a", "share": 0.5}]
    assert answer.head(1).coverage == answer.coverage
    assert answer.head(10**30).table.equals(answer.table)
    with pytest.raises(KeyError, match="did you mean 'share'"):
        answer["shares"]


def test_whole_numbers_survive_pandas(answer: Result) -> None:
    pandas = pytest.importorskip("pandas")
    frame = answer.to_pandas()
    assert frame["event"].dtype == pandas.Int64Dtype()
    assert int(frame["event"][0]) == BIG and frame["event"][1] is pandas.NA


_SAMPLES = ("sample", *(str(ROOT / "sample_traces" / n) for n in ("flight_recorder", "ras")))
_JOB = str(ROOT / "sample_traces" / "operation_timeline")


@cache
def _opened(sample: str) -> Session:
    return htk.open(sample)


def _answered(name: str) -> Result:
    """The answer of the first sample that has one, else no rows of the declared columns."""
    for sample in (*_SAMPLES, _JOB):
        try:
            return _opened(sample).ask(name)
        except HtkError:
            continue
    return Result(find_analysis(name).label, find_analysis(name).returns.empty_table())


@pytest.mark.parametrize("name", ANALYSES)
def test_every_answer_goes_round_and_keeps_its_types(name: str) -> None:
    whole = _answered(name)
    some = whole.head(0)
    assert (whole.to_pandas().dtypes == some.to_pandas().dtypes).all()
    for field in whole.schema:
        if pa.types.is_integer(field.type):
            assert str(whole.to_pandas()[field.name].dtype) == f"Int{field.type.bit_width}"
    again = pickle.loads(pickle.dumps(whole))
    assert again.to_pylist() == whole.to_pylist() and again.analysis == whole.analysis
    polars = whole.to_polars()
    assert len(polars) == len(whole)
    assert {str(kind) for kind in polars.schema.values()}.isdisjoint({"Categorical", "Enum"})
    written = pq.read_table(io.BytesIO(to_bytes(whole, "parquet")))
    assert not any(pa.types.is_dictionary(kind) for kind in written.schema.types)
    assert [field.metadata for field in written.schema] == [f.metadata for f in whole.schema]
    assert pa.Table.from_pandas(whole.to_pandas(), preserve_index=False).num_rows == len(whole)


def test_ranks_that_were_not_recorded_are_refused_at_once() -> None:
    with pytest.raises(HtkError, match="9"):
        htk.open("sample").sel(ranks=[9])


def test_tables_are_attributes() -> None:
    tables = htk.open("sample").tables
    assert tables.kernels.equals(tables["kernels"])
    assert "kernels" in dir(tables) and "kernels (" in repr(tables)
    with pytest.raises(AttributeError, match="no table 'kernel'"):
        _ = tables.kernel


def test_a_session_lists_its_questions_and_no_internals() -> None:
    names = dir(htk.open("sample"))
    assert set(ANALYSES) <= set(names)
    assert not {"need", "emptied", "relative", "under", "check_selection"} & set(names)
