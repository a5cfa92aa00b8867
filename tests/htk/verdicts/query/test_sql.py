"""SQL over traces: what it reads, what it refuses, and the queries of its page."""

import json
import re
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htk
from htk.answers.export.dataset import write_dataset
from htk.answers.output.render import to_text
from htk.base.errors import UsageError
from htk.base.schema import TABLES
from htk.faces.notebook.session import Session
from htk.verdicts.query.sql import query_dataset, run_query
from htk.verdicts.query.worker import Limits, build_macros
from tests.kineto_file import kernel, of_rank, write

PAGE = Path(__file__).parents[4] / "docs/sql.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Two kernels that overlap by 1 us, and one apart."""
    folder = tmp_path_factory.mktemp("trace")
    events = (kernel("gemm", 1, 3), kernel("add", 3, 2, stream=9), kernel("gemm", 10, 1))
    return htk.open(write(folder / "a.json", *events, **of_rank(0)), cache=False)


@pytest.fixture(scope="module")
def sample() -> Session:
    return htk.open("sample")


def test_show_tables_lists_what_a_query_may_read(trace: Session) -> None:
    answer = trace.sql("SHOW TABLES;").to_pylist()
    meanings = {row["name"]: row["meaning"] for row in answer}
    assert meanings["kernels"] == "table"
    assert meanings["kernel_top"] == htk.catalog()["kernel_top"]
    for name in ("kernels", "kernels_with_ops", "time_breakdown"):  # what it lists can be read
        assert trace.sql(f"select count(*) as n from {name}").shape == (1, 1) and name in meanings


def test_tables_and_analyses_are_read_by_name(trace: Session) -> None:
    assert trace.sql("select count(*) as n from kernels").to_pylist() == [{"n": 3}]
    assert trace.sql("SELECT busy_ns FROM Time_Breakdown").to_pylist() == [{"busy_ns": 5000}]
    assert trace.sql("from busy('kernels')").to_pylist() == [
        {"rank": 0, "device": 0, "busy_ns": 5000}
    ]


def test_pivot_is_a_reading_statement(trace: Session) -> None:
    of_names = "(select rank, name, end_ns - start_ns as length from kernels)"
    (row,) = trace.sql(f"pivot {of_names} on name using sum(length)").to_pylist()
    assert row["gemm"] == 4000


def test_parameters_by_name_and_by_place(trace: Session) -> None:
    by_name = run_query(
        trace, "select count(*) as n from kernels where name = $name", None, {"name": "gemm"}
    )
    by_place = run_query(trace, "select count(*) as n from kernels where name = ?", None, ["gemm"])
    assert by_name.to_pylist() == by_place.to_pylist() == [{"n": 2}]


def test_every_format_can_hold_what_is_answered(trace: Session) -> None:
    asked = "select 1/0 as over, -1/0 as under, 9223372036854775807::hugeint + 1 as large"
    assert trace.sql(asked).to_pylist() == [
        {"over": None, "under": None, "large": "9223372036854775808"}
    ]


def test_a_map_is_json_as_a_struct_is(trace: Session) -> None:
    answer = run_query(trace, "select map {'a': 2} as m, {'a': 2} as s")
    assert [json.loads(to_text(answer, "json"))["rows"][0]["m"]] == ['{"a":2}']
    assert '"{""a"":2}","{""a"": 2}"' in to_text(answer, "csv")


def test_an_analysis_takes_its_options(trace: Session) -> None:
    by_count = "kernel_top(n := 1, sort_by := 'count')"
    asked = f"select name, total_ns from {by_count} where name <> 'others'"
    assert trace.sql(asked).to_pylist() == [{"name": "gemm", "total_ns": 4000}]
    with pytest.raises(UsageError, match="no option 'm'"):
        trace.sql("from kernel_top(m := 1)")
    with pytest.raises(UsageError, match="OPTION := VALUE"):
        trace.sql("from kernel_top(1)")


def test_text_and_comments_name_nothing(trace: Session) -> None:
    asked = "select 'kernel_top(n := 1) of it' as a -- kernel_top(m := 1)"
    assert trace.sql(asked).to_pylist() == [{"a": "kernel_top(n := 1) of it"}]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("select * from kernles", "did you mean kernels"),
        ("select * from hang", "no flight recorder dump"),
        ("selec 1", "syntax error"),
        ("select 1; select 2", "one reading statement"),
        ("create table a as select 1", "one reading statement"),
        ("copy (select 1) to 'a.csv'", "one reading statement"),
        ("set memory_limit = '1TB'", "one reading statement"),
        ("select * from read_csv('/etc/passwd')", "disabled"),
        ("select * from '/etc/passwd.csv'", "disabled|no table"),
        ("select * from trace", "no table or analysis 'trace'"),
        ("select nme from kernels", "no column 'nme'; did you mean name"),
        ("select k.strt_ns from kernels k", "no column 'strt_ns'; did you mean start_ns"),
        ("select * from kernel_top(" + "''" * 35, "sql: "),
        ("select " + "'" * 100_001, "sql: "),
        ("select '\ud800'", "not Unicode"),
        ("", "one reading statement"),
    ],
)
def test_what_is_refused_says_why_on_one_line(trace: Session, asked: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        trace.sql(asked)
    assert "\n" not in str(raised.value)


def test_a_query_ends_at_its_limits(trace: Session) -> None:
    endless = "select count(*) from range(10000000) a, range(10000000) b where a.range*b.range%7=3"
    with pytest.raises(UsageError, match=r"stopped after 0\.2 s"):
        run_query(trace, endless, Limits(seconds=0.2))
    large = "select list(r)::varchar from (select random() as r from range(50000000))"
    with pytest.raises(UsageError, match="stopped at 20MB"):
        run_query(trace, large, Limits(memory="20MB"))


def test_joined_views_agree_with_joins_by_row(sample: Session) -> None:
    by_hand = """
        with ops as (select row_number() over () - 1 as op_row, name as op from cpu_ops),
             ranges as (select row_number() over () - 1 as annotation_row, name as annotation
                        from annotations),
             calls as (select row_number() over () - 1 as launch_row, name as launch
                       from launches),
             gpu as (select row_number() over () - 1 as row, * from kernels),
             links as (select row_number() over () - 1 as row, * from kernel_links)
        select rank, name, start_ns, end_ns - start_ns as duration_ns, step, op, annotation, launch
        from gpu join links using (row) left join ops using (op_row)
             left join ranges using (annotation_row) left join calls using (launch_row)"""
    names = "rank, name, start_ns, duration_ns, step, op, annotation, launch"
    joined = sample.sql(f"select {names} from kernels_with_ops").to_pylist()
    assert len({row["op"] for row in joined}) > 5 and len({row["step"] for row in joined}) > 1
    assert sorted(joined, key=str) == sorted(sample.sql(by_hand).to_pylist(), key=str)
    callers = sample.sql(
        "select parent_name, count(*) as n from ops_with_steps where depth > 0 group by parent_name"
    ).to_pylist()
    links = sample.tables["op_links"]
    names_of = sample.tables["cpu_ops"]["name"].to_pylist()
    called = Counter(names_of[row] for row in links["parent_row"].to_pylist() if row is not None)
    assert {row["parent_name"]: row["n"] for row in callers} == called


def test_a_selection_is_asked_by_the_same_process(sample: Session) -> None:
    asked = "select count(*)::int as n, min(rank) as low from kernels"
    whole = sample.sql(asked).to_pylist()
    (second,) = sample.sel(ranks=[1]).sql(asked).to_pylist()
    assert second["low"] == 1 and 0 < second["n"] < whole[0]["n"]
    assert sample.sql(asked).to_pylist() == whole


@pytest.mark.parametrize("asked", QUERIES)
def test_the_queries_of_the_page_answer(sample: Session, asked: str) -> None:
    assert len(sample.sql(asked)) > 0


def test_the_page_has_ten() -> None:
    assert len(QUERIES) == 10


def test_own_overlap_query_agrees_with_the_analysis(sample: Session) -> None:
    exposed = next(q for q in QUERIES if "exposed_spans" in q)
    by_analysis = [row["exposed_comm_ns"] for row in sample.time_breakdown().to_pylist()]
    assert [row["exposed_comm_ns"] for row in sample.sql(exposed).to_pylist()] == by_analysis


def test_a_parquet_dataset_is_scanned_and_nothing_beside_it(trace: Session, tmp_path: Path) -> None:
    folder = tmp_path / "it's a set"
    write_dataset(trace, ["kernels"], folder, "parquet")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    asked = "select rank, sum(end_ns - start_ns)::bigint as ns from kernels group by rank"
    assert query_dataset(folder, asked).to_pylist() == [{"rank": 0, "ns": 6000}]
    with pytest.raises(UsageError, match="disabled"):
        query_dataset(folder, f"from read_csv('{tmp_path}/secret.csv')")
    with pytest.raises(UsageError, match="of the trace"):
        query_dataset(folder, "from time_breakdown")


def test_analyses_answer_over_a_dataset_as_over_its_trace(sample: Session, tmp_path: Path) -> None:
    write_dataset(sample, TABLES, tmp_path, "parquet")
    for asked in (
        "from time_breakdown",
        "from kernel_top(n := 3) join kernels using (name)",
        "select * from stragglers",
        "select count(*) as n from kernel_links where launch_row is not null",
    ):
        found = query_dataset(tmp_path, asked)
        # no query names an order, and a join has none
        assert sorted(found.to_pylist(), key=str) == sorted(sample.sql(asked).to_pylist(), key=str)
        assert found.coverage["ranks"] == [0, 1]


_SPANS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 5)), max_size=12)
_ON_DEVICES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 5), st.integers(0, 1)),
    min_size=1,
    max_size=8,
)


def _covered(spans: list[tuple[int, int, int]]) -> set[tuple[int, int]]:
    return {(rank, t) for rank, start, length in spans for t in range(start, start + length)}


@given(first=_SPANS, second=_SPANS)
def test_interval_macros_against_counting_every_nanosecond(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]
) -> None:
    connection = duckdb.connect(":memory:")
    connection.execute(build_macros())
    for name, spans in (("a", first), ("b", second)):
        columns = {
            "rank": pa.array([r for r, _, _ in spans], pa.int32()),
            "start_ns": pa.array([s for _, s, _ in spans], pa.int64()),
            "end_ns": pa.array([s + n for _, s, n in spans], pa.int64()),
        }
        connection.register(name, pa.table(columns))
    a, b = _covered(first), _covered(second)
    for asked, truth in (
        ("union_spans('a')", a),
        ("overlap_spans('a', 'b')", a & b),
        ("exposed_spans('a', 'b')", a - b),
    ):
        rows = connection.execute(f"from {asked}").fetchall()
        found = [(rank, t) for rank, _, start, end in rows for t in range(start, end)]
        assert len(found) == len(set(found)) and set(found) == truth, asked
    connection.close()


@given(on_gpu=_ON_DEVICES, on_host=_SPANS)
def test_interval_macros_keep_devices_apart(
    on_gpu: list[tuple[int, int, int, int]], on_host: list[tuple[int, int, int]]
) -> None:
    """What has no device is held against each device of its rank."""
    connection = duckdb.connect(":memory:")
    connection.execute(build_macros())
    for name, spans in (("a", on_gpu), ("b", on_host)):
        names = ("rank", "start_ns", "length", "device")[: 4 if name == "a" else 3]
        columns = {n: pa.array([row[k] for row in spans], pa.int64()) for k, n in enumerate(names)}
        ends = pa.array([row[1] + row[2] for row in spans], pa.int64())
        connection.register(name, pa.table({**columns, "end_ns": ends}))
    a = {(rank, device, t) for rank, s, n, device in on_gpu for t in range(s, s + n)}
    devices = {(rank, device) for rank, _, n, device in on_gpu if n}
    b = {(*gpu, t) for rank, t in _covered(on_host) for gpu in devices if gpu[0] == rank}
    for asked, truth in (("overlap_spans('a', 'b')", a & b), ("exposed_spans('a', 'b')", a - b)):
        rows = connection.execute(f"from {asked}").fetchall()
        points = [(rank, device, t) for rank, device, s, e in rows for t in range(s, e)]
        assert len(points) == len(set(points)) and set(points) == truth, asked
    lengths = {(r, d): n for r, d, n in connection.execute("from busy('a')").fetchall()}
    assert lengths == {gpu: sum(point[:2] == gpu for point in a) for gpu in devices}
    connection.close()
