"""rocprofv3's databases, of both schemas."""

import sqlite3
from pathlib import Path

from sample_traces.rocprof_export import BOOT_NS, Database, as_database
from tests.parsers.opened_files import kept, opened, rows
from tests.parsers.rocprof_samples import DATABASE, JSON


def test_the_database_holds_what_the_json_does() -> None:
    for table in ("kernels", "launches", "annotations", "events"):
        both = [
            kept(path).tables[table].drop_columns(["rank"]).to_pylist() for path in (JSON, DATABASE)
        ]
        assert both[0] == both[1], table


def test_the_environment_names_the_rank() -> None:
    (row,) = rows(kept(DATABASE), "ranks")
    assert (row["rank"], row["world_size"], row["host"]) == (1, 2, "node7")


def test_the_gpus_of_the_host_are_counted_and_its_processor_is_none() -> None:
    with sqlite3.connect(DATABASE) as database:
        (table,) = database.execute(
            "select name from sqlite_master where name like 'rocpd_info_agent%' and type = 'table'"
        ).fetchone()
        agents = database.execute(f"select type, product_name from {table}").fetchall()
    gpus = [name for kind, name in agents if kind == "GPU"]
    (row,) = rows(kept(DATABASE), "ranks")
    assert len(agents) > len(gpus) == 2
    assert (row["device_count"], row["device_name"]) == (len(gpus), gpus[0])


def test_databases_that_were_joined_are_processes_of_their_own(tmp_path: Path) -> None:
    database = Database(tmp_path / "t.db")
    database.run("_b", {"RANK": "3", "WORLD_SIZE": "4"}, pid=77, late=500)
    database.run("_a", {"RANK": "0", "WORLD_SIZE": "4"})
    database.close()
    trace = opened(tmp_path / "t.db")
    assert trace.ranks == [0, 3]
    for rank, late in ((0, 0), (3, 500)):
        first = min(k["start_ns"] for k in rows(trace, "kernels", rank=rank))
        assert first == BOOT_NS + 3_000 + late
        assert len(rows(trace, "kernels", rank=rank)) == 10
    linked = trace.tables["kernel_links"]["launch_start_ns"].to_pylist()
    assert [k["start_ns"] > at for k, at in zip(rows(trace, "kernels"), linked, strict=True)]


def test_schema_4_says_what_schema_3_says(tmp_path: Path) -> None:
    as_database(tmp_path / "v4.db", schema=4)
    trace, right = opened(tmp_path / "v4.db"), kept(DATABASE)
    for table in ("kernels", "launches", "annotations", "collectives", "kernel_links"):
        assert trace.tables[table].to_pylist() == right.tables[table].to_pylist(), table
    assert trace.ranks == [1]


def test_totals_of_schema_4_are_those_of_plain_sql(tmp_path: Path) -> None:
    as_database(tmp_path / "v4.db", schema=4)
    connection = sqlite3.connect(tmp_path / "v4.db")
    for table, activity in (("kernel_dispatch", "kernel"), ("memory_copy", "copy")):
        query = f'select count(*), sum("end" - start) from rocpd_{table}_0a1b'
        found = rows(opened(tmp_path / "v4.db"), "kernels", activity=activity)
        times = sum(row["end_ns"] - row["start_ns"] for row in found)
        assert (len(found), times) == connection.execute(query).fetchone()
    connection.close()
