"""The process behind SQL: it is killed when it must be, and started again."""

import getpass
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.base.core import child_process
from htk.base.errors import UsageError
from htk.verdicts.query import worker as module
from htk.verdicts.query.worker import Limits, QueryWorker, Refusal, cancelled

GIB = 1 << 30
ENDLESS = "select count(*) from range(10000000) a, range(10000000) b where a.range*b.range%7=3"


@pytest.fixture(params=["forked", "spawned"])
def worker(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[QueryWorker]:
    if request.param == "forked" and sys.platform != "linux":
        pytest.skip("processes are forked on Linux alone")
    monkeypatch.setattr(child_process, "may_fork", lambda: request.param == "forked")
    started = QueryWorker(GIB, {})
    yield started
    started.close()


def _rows(worker: QueryWorker, text: str, seconds: float = 60, **tables: pa.Table) -> Any:
    return worker.query(text, tables, seconds).to_pylist()


def _pid(worker: QueryWorker) -> int:
    (row,) = _rows(worker, "select current_setting('threads') as n")
    assert row["n"]
    process: Any = worker._process
    return int(process._pid if hasattr(process, "_pid") else process._process.pid)


def test_one_process_answers_query_after_query(worker: QueryWorker) -> None:
    first, second = pa.table({"a": [1, 2]}), pa.table({"a": [3]})
    assert _rows(worker, "select sum(a)::int as s from t", t=first) == [{"s": 3}]
    pid = _pid(worker)
    assert _rows(worker, "select sum(a)::int as s from t", t=first) == [{"s": 3}]
    assert _rows(worker, "select sum(a)::int as s from t", t=second) == [{"s": 3}]
    assert _rows(worker, "select count(*) as n from t", t=second) == [{"n": 1}]
    assert _pid(worker) == pid


def test_columns_of_text_arrive_whole(worker: QueryWorker) -> None:
    names = pa.chunked_array(
        [pa.array(["a", None, "a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()]
    )
    table = pa.table({"name": names})
    assert _rows(worker, "from t", t=table) == table.to_pylist()


def test_what_does_not_stop_is_killed_and_the_next_query_answered(
    worker: QueryWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(_pid(worker), signal.SIGSTOP)  # as if it were within one very long step
    monkeypatch.setattr(module, "_GRACE_S", 0.1)
    with pytest.raises(Refusal) as raised:
        worker.query("select 1 as a", {}, 0.1)
    assert raised.value.kind == "killed"
    monkeypatch.setattr(module, "_GRACE_S", 60)
    assert _rows(worker, "from t", t=pa.table({"a": [1]})) == [{"a": 1}]


def test_queries_wait_in_line_until_they_are_cancelled(worker: QueryWorker) -> None:
    _pid(worker)
    unwanted = {name: threading.Event() for name in ("running", "waiting")}
    kinds: dict[str, str] = {}

    def ask_endless(name: str) -> None:
        cancelled.set(unwanted[name])
        try:
            worker.query(ENDLESS, {}, 600)
        except Refusal as refusal:
            kinds[name] = refusal.kind

    threads = {name: threading.Thread(target=ask_endless, args=[name]) for name in unwanted}
    threads["running"].start()
    while not worker.busy:
        assert threads["running"].is_alive()
    threads["waiting"].start()
    unwanted["waiting"].set()
    threads["waiting"].join()
    assert kinds == {"waiting": "cancelled"}
    unwanted["running"].set()
    assert _rows(worker, "select 1 as a") == [{"a": 1}]
    threads["running"].join()
    assert kinds["running"] == "killed"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps such a limit")
@pytest.mark.parametrize(
    "text",
    [
        "select length(repeat('x', 4000000000)) as n",
        "select repeat('x', 4000000000) as t",
        "select list(repeat('x', 100000) || range) from range(1000000)",
    ],
)
def test_memory_is_limited_for_texts_too(worker: QueryWorker, text: str) -> None:
    with pytest.raises(Refusal) as raised:
        worker.query(text, {}, 600)
    assert raised.value.kind == "memory"
    assert _rows(worker, "select 1 as a") == [{"a": 1}]


def test_no_setting_tells_whose_machine_it_is(worker: QueryWorker) -> None:
    said = str(_rows(worker, "from duckdb_settings()")) + str(_rows(worker, "from duckdb_views()"))
    for secret in (str(Path.home()), os.getcwd(), f"/{getpass.getuser()}"):
        assert secret not in said


@pytest.mark.parametrize(
    "asked",
    [
        "from duckdb_extensions()",
        "from duckdb_secrets()",
        "from which_secret('s3://x', 's3')",
        "from read_csv('~/x.csv')",
        "load httpfs",
    ],
)
def test_no_refusal_tells_whose_machine_it_is(worker: QueryWorker, asked: str) -> None:
    try:
        said = str(_rows(worker, asked))
    except Refusal as refusal:
        said = refusal.why
    assert str(Path.home()) not in said and os.getcwd() not in said


def test_values_that_python_does_not_hold_are_text_or_refused(worker: QueryWorker) -> None:
    asked = "select column_name as name from (describe select * from test_all_types())"
    names = [row["name"] for row in _rows(worker, asked)]
    assert len(names) > 40
    refused = set()
    for name in names:
        try:
            _rows(worker, f'select "{name}" from test_all_types()')
        except Refusal as refusal:
            assert "outside of the years 1 to 9999" in refusal.why
            refused.add(name)
    assert refused == {"date", "timestamp"}
    assert _rows(worker, "select 'infinity'::date::varchar as d") == [{"d": "infinity"}]
    (row,) = _rows(
        worker, "select [date '1999-12-31'] as l, interval 3 days as i, 1.5::dec(5,1) as d"
    )
    assert row == {"l": "[1999-12-31]", "i": "3 days", "d": 1.5}
    (row,) = _rows(
        worker, "select [1, null] as l, {'a': [1.5::double, 2]} as s, date '0001-01-01' as d"
    )
    assert row["l"] == [1, None] and row["s"] == {"a": [1.5, 2.0]} and row["d"].year == 1


@pytest.mark.parametrize(
    ("memory", "size"), [("4GB", 4 * 10**9), ("1.5 GiB", 3 << 29), ("500mb", 5 * 10**8)]
)
def test_sizes_of_memory(memory: str, size: int) -> None:
    assert Limits(memory=memory).memory_bytes == size


@pytest.mark.parametrize("memory", ["4 apples", "", "-1GB", "0GB", "80%", "1e9"])
def test_what_is_no_size_is_refused(memory: str) -> None:
    with pytest.raises(UsageError, match="such as 4GB"):
        assert Limits(memory=memory).memory_bytes


_ENDLESS_PARENT = f"""
import os, signal
from htk.base.core.child_process import start_child
from htk.verdicts.query import worker
child = start_child("htk.verdicts.query.engine:serve", {{}}, fork=FORK)
worker._send_request(child, {{"do": "start", "with": worker.QueryWorker(1 << 30, {{}})._opening}})
worker._send_request(child, {{"do": "query", "text": "select 1", "seconds": 60}})
assert child.answers.readline()
worker._send_request(child, {{"do": "query", "text": {ENDLESS!r}, "seconds": 600}})
print(getattr(child, "_pid", None) or child._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("fork", ["True", "False"])
def test_an_endless_query_ends_with_the_process_that_asked(fork: str) -> None:
    script = _ENDLESS_PARENT.replace("FORK", fork)
    asked = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert asked.returncode == -signal.SIGKILL, asked.stderr
    child = Path(f"/proc/{int(asked.stdout)}/cmdline")
    until = time.monotonic() + 120
    while child.exists() and child.read_bytes() and time.monotonic() < until:
        time.sleep(0.05)
    assert not (child.exists() and child.read_bytes())  # a zombie's is empty
