"""Tables of an SQLite file that nobody vouches for: what is read, what is refused, what is lost."""

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.base.core.parser import Source
from htk.base.errors import MalformedTrace
from htk.parsers.common.log_records import Issues
from htk.parsers.common.sqlite_file import open_database

WANTED = {"id": pa.int64(), "share": pa.float64(), "name": pa.string(), "blob": pa.binary()}


def source(path: Path) -> Source:
    return Source(str(path), lambda: path.open("rb"), path.stat().st_size, path=path)


def written(path: Path, *statements: str, rows: tuple[tuple[Any, ...], ...] = ()) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    for row in rows:
        connection.execute(f"INSERT INTO t VALUES ({','.join('?' * len(row))})", row)
    connection.commit()
    connection.close()
    return path


def read(path: Path, table: str = "t") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    issues = Issues()
    with open_database(source(path), issues) as database:
        rows = database.read(table, WANTED).to_pylist()
    return rows, issues.table().to_pylist()


TABLE = "CREATE TABLE t (id, share, name, blob)"
ROWS = ((1, 0.5, "é" * 3, b"\x00\xff"), (2**63 - 1, -1.0, "", b""), (None,) * 4)


@pytest.mark.parametrize("packed", [False, True])
def test_columns_come_as_they_are_stored(tmp_path: Path, packed: bool) -> None:
    path = written(tmp_path / "t.sqlite", TABLE, rows=ROWS)
    if packed:
        data = path.read_bytes()
        path = tmp_path / "t.sqlite.gz"
        path.write_bytes(gzip.compress(data))
    rows, issues = read(path)
    assert [tuple(row.values()) for row in rows] == list(ROWS) and not issues


def test_what_the_file_lacks_is_null_or_no_row(tmp_path: Path) -> None:
    path = written(tmp_path / "t.sqlite", "CREATE TABLE t (id)", rows=((7,),))
    assert read(path)[0] == [{"id": 7, "share": None, "name": None, "blob": None}]
    assert read(path, "nonesuch")[0] == []
    other = written(tmp_path / "other.sqlite", "CREATE TABLE t (unread)", rows=((7,),))
    assert read(other)[0] == []


def test_values_of_another_type_are_null_and_counted(tmp_path: Path) -> None:
    rows = ((1, 2, "a", b"b"), ("x", "y", "c", b"d"), (2.5, None, "e", b"f"), (4, 0.5, "g", b"h"))
    path = written(tmp_path / "t.sqlite", TABLE, rows=rows)
    columns, issues = read(path)
    assert [row["id"] for row in columns] == [1, None, None, 4]
    assert [row["share"] for row in columns] == [2.0, None, None, 0.5]
    assert {i["text"]: (i["kind"], i["count"]) for i in issues} == {
        "t.id": ("mistyped_value", 2),
        "t.share": ("mistyped_value", 1),
    }


def test_nothing_in_the_file_runs(tmp_path: Path) -> None:
    """Views, virtual tables and generated columns are code of whoever wrote the file."""
    path = written(
        tmp_path / "t.sqlite",
        "CREATE TABLE t (id, share AS (id * 2), name TEXT AS (hex(zeroblob(9))) STORED)",
        "CREATE VIEW v AS SELECT id, 'from a view' AS name FROM t",
        "INSERT INTO t VALUES (7)",
    )
    with open_database(source(path), Issues()) as database:
        assert dict(database.columns) == {"t": ("id",)}
        assert "v" not in database and database.read("v", WANTED).num_rows == 0
        (row,) = database.read("t", WANTED).to_pylist()
        assert (row["id"], row["share"], row["name"]) == (7, None, None)
        for statement in (
            "INSERT INTO t VALUES (8)",
            "ATTACH 'x' AS x",
            "PRAGMA writable_schema = ON",
            "SELECT load_extension('x')",
            "SELECT name FROM v",
            "SELECT hex(id) FROM t",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                database._connection.execute(statement).fetchall()


def test_names_with_quotes_are_names(tmp_path: Path) -> None:
    name = 'a"; DROP TABLE t; --'
    quoted = name.replace('"', '""')
    path = written(
        tmp_path / "t.sqlite", f'CREATE TABLE "{quoted}" (id)', f'INSERT INTO "{quoted}" VALUES (3)'
    )
    assert [row["id"] for row in read(path, name)[0]] == [3]


def test_a_long_text_is_cut_and_a_long_blob_left_out(tmp_path: Path) -> None:
    most = 64 * 1024
    rows = ((1, None, "x" * (most + 1), b"y" * most), (2, None, "z", b"y" * (most + 1)))
    path = written(tmp_path / "t.sqlite", TABLE, rows=rows)
    first, second = read(path)[0]
    assert len(first["name"]) == most and len(first["blob"]) == most
    assert second["blob"] is None


def test_texts_that_are_no_utf8_are_replaced(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.sqlite", TABLE, "INSERT INTO t VALUES (1, 0.5, CAST(x'61ff62' AS TEXT), x'')"
    )
    assert read(path)[0][0]["name"] == "a\ufffdb"


def test_a_damaged_page_ends_its_table_and_is_said(tmp_path: Path) -> None:
    rows = tuple((k, 0.5, "name" * 50, b"") for k in range(20_000))
    path = written(tmp_path / "t.sqlite", TABLE, rows=rows)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096 * 4] = b"\xa5" * 4096 * 4
    path.write_bytes(data)
    columns, issues = read(path)
    ids = [row["id"] for row in columns]
    assert 0 < len(ids) < len(rows) and ids == list(range(len(ids)))
    assert [i["kind"] for i in issues] == ["damaged_table"]
    assert "rows from there on are left out" in issues[0]["text"]


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    with pytest.raises(MalformedTrace, match="not a readable SQLite file"):
        read(path)
