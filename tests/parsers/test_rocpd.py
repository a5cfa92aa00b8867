"""rocprofv3's databases, of both schemas."""

import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MalformedTrace
from htk.traces.trace.trace import Trace
from sample_traces.rocprof_export import BOOT_NS, GPU_0, GPU_1, Database, as_database
from tests.parsers.opened_files import kept, opened, rows
from tests.parsers.rocprof_samples import DATABASE, JSON, differences


def test_the_database_holds_what_the_json_does() -> None:
    for table in ("kernels", "launches", "annotations", "events"):
        both = [
            kept(path).tables[table].drop_columns(["rank"]).to_pylist() for path in (JSON, DATABASE)
        ]
        assert both[0] == both[1], table


def test_calls_of_threads_without_a_number_are_answered(tmp_path: Path) -> None:
    copied = tmp_path / "odd.db"
    shutil.copy(DATABASE, copied)
    with sqlite3.connect(copied) as database:
        database.execute("update rocpd_info_thread_0a1b set tid = -1")
    trace = opened(copied)
    assert {row["thread"] for row in rows(trace, "launches")} == {None}
    assert ask_trace(trace, "recommendations").to_pylist()


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


GEMM = "void gemm<float>(float*)"
COPY_IN, COPY_OUT = "Memcpy HtoD (Host -> Device)", "Memcpy DtoH (Device -> Host)"


def changed(path: Path, *statements: str) -> Trace:
    """The job, one statement of SQL later; `TABLE` ends in the name of its run."""
    as_database(path)
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(re.sub(r"rocpd_\w+", r"\g<0>_0a1b", statement))
    connection.close()
    return opened(path)


# Of the second kernel, which took 64 + 8 registers, and of the copies: what is not recorded there.
@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("agent_id", {"device": (1, None)}),
        ("stream_id", {"stream": (4, 17)}),
        ("group_segment_size", {"shared_memory_bytes": (512, None)}),
        ("event_id", {"correlation": (3, None)}),
        ("grid_size_x", {"grid": ("[4,1,1]", None)}),
        ("grid_size_z", {"grid": ("[4,1,1]", None)}),
        ("workgroup_size_x", {"grid": ("[4,1,1]", None), "block": ("[256,1,1]", None)}),
        ("workgroup_size_y", {"grid": ("[4,1,1]", None), "block": ("[256,1,1]", None)}),
    ],
)
def test_what_a_dispatch_does_not_say_is_unknown(
    tmp_path: Path, column: str, wanted: dict[str, Any]
) -> None:
    statement = f"UPDATE rocpd_kernel_dispatch SET {column} = NULL WHERE stream_id = 4 AND start < "
    trace = changed(tmp_path / "t.db", statement + str(BOOT_NS + 50_000))
    assert differences(trace, "kernels") == wanted


def test_a_kernel_without_a_symbol_is_not_the_first_one(tmp_path: Path) -> None:
    """Symbols 7 and 8 become 1 and 0, which a number in the place of none would be."""
    renumbered = [
        f"UPDATE rocpd_{table} SET {column} = 8 - {column} WHERE {column} IS NOT NULL"
        for table, column in (("kernel_dispatch", "kernel_id"), ("info_kernel_symbol", "id"))
    ]
    trace = changed(tmp_path / "a.db", *renumbered)
    assert rows(trace, "kernels") == rows(kept(DATABASE), "kernels")
    lost = "UPDATE rocpd_kernel_dispatch SET kernel_id = NULL WHERE rowid = 1"
    trace = changed(tmp_path / "b.db", lost, *renumbered)
    differing = differences(trace, "kernels")
    assert differing["name"] == (GEMM, "unknown -1") and differing["registers"] == (72, None)


@pytest.mark.parametrize("column", ["arch_vgpr_count", "accum_vgpr_count"])
def test_registers_that_were_not_counted_are_unknown(tmp_path: Path, column: str) -> None:
    lost = f"UPDATE rocpd_info_kernel_symbol SET {column} = NULL WHERE id = 7"
    trace = changed(tmp_path / "t.db", lost)
    found = {k["name"].split("(")[0]: k["registers"] for k in rows(trace, "kernels")}
    assert found["void gemm<float>"] is None and found["ncclDevKernel_Generic_1"] == 32


@pytest.mark.parametrize(
    ("name", "column", "wanted"),
    [
        (COPY_OUT, "dst_agent_id", {}),  # where it leaves is known
        (COPY_OUT, "src_agent_id", {"device": (1, None)}),
        (COPY_IN, "src_agent_id", {}),
        (COPY_IN, "dst_agent_id", {"device": (1, None)}),
        (COPY_IN, "size", {"size_bytes": (8_000, None), "bandwidth_gbps": (4.0, None)}),
        (COPY_IN, "stream_id", {"stream": (3, None)}),
        (COPY_IN, "event_id", {"correlation": (1, None)}),
    ],
)
def test_what_a_copy_does_not_say_is_unknown(
    tmp_path: Path, name: str, column: str, wanted: dict[str, Any]
) -> None:
    order = "min" if name == COPY_IN else "max"
    first = f"(SELECT {order}(start) FROM rocpd_memory_copy WHERE start < {BOOT_NS + 50_000})"
    lost = f"UPDATE rocpd_memory_copy SET {column} = NULL WHERE start = {first}"
    trace = changed(tmp_path / "t.db", lost)
    same = rows(trace, "kernels") == rows(kept(DATABASE), "kernels")
    assert same if not wanted else differences(trace, "kernels") == wanted


def test_a_copy_between_gpus_belongs_to_the_one_that_it_reaches(tmp_path: Path) -> None:
    other_way = f"UPDATE rocpd_memory_copy SET src_agent_id = {GPU_1}, dst_agent_id = {GPU_0}"
    trace = changed(tmp_path / "t.db", other_way)
    assert {k["device"] for k in rows(trace, "kernels", activity="copy")} == {0}


def test_gpus_without_an_index_are_counted_as_they_are_listed(tmp_path: Path) -> None:
    trace = changed(tmp_path / "t.db", "UPDATE rocpd_info_agent SET type_index = NULL")
    assert {k["device"] for k in rows(trace, "kernels")} == {0}  # GPU_1 is listed before GPU_0


def test_calls_without_a_thread_a_name_or_an_event(tmp_path: Path) -> None:
    start = BOOT_NS + 5_500  # the launch on the other thread
    threads = {c["thread"] for c in rows(kept(DATABASE), "launches")}
    assert threads == {"908", "973"}
    for column, wanted in (
        ("tid", {"thread": ("973", None)}),
        ("name_id", {"name": ("hipLaunchKernel", "unknown -1")}),
    ):
        lost = f"UPDATE rocpd_region SET {column} = NULL WHERE start = {start}"
        assert differences(changed(tmp_path / f"{column}.db", lost), "launches") == wanted
    lost = f"UPDATE rocpd_region SET event_id = NULL WHERE start = {start}"
    calls = rows(changed(tmp_path / "event.db", lost), "launches")  # of which library is unknown
    assert [c["start_ns"] for c in calls] == [
        c["start_ns"] for c in rows(kept(DATABASE), "launches") if c["start_ns"] != start
    ]


@pytest.mark.parametrize(
    ("environment", "rank", "size"),
    [
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, 5, 8),
        ({"RANK": "3", "SLURM_PROCID": "5", "WORLD_SIZE": "4"}, 3, 4),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, 0, 1),
        ({"PMI_RANK": "7"}, 7, None),
    ],
)
def test_launchers_name_the_rank(
    tmp_path: Path, environment: dict[str, str], rank: int, size: int | None
) -> None:
    database = Database(tmp_path / "t.db")
    database.run("_a", environment)
    database.close()
    (row,) = rows(opened(tmp_path / "t.db"), "ranks")
    assert (row["rank"], row["world_size"]) == (rank, size)


def test_a_rank_beyond_the_size_of_the_job_is_none(tmp_path: Path) -> None:
    for number, environment in enumerate(({"RANK": "4", "WORLD_SIZE": "4"}, {"RANK": "-1"})):
        database = Database(tmp_path / f"{number}.db")
        database.run("_a", environment)
        database.close()
        (row,) = rows(opened(tmp_path / f"{number}.db"), "ranks")
        assert (row["rank_from"], row["world_size"]) != ("environment", 4)


def test_a_process_of_regions_alone_is_read(tmp_path: Path) -> None:
    gone = [f"DELETE FROM rocpd_{table}" for table in ("kernel_dispatch", "memory_copy")]
    trace = changed(tmp_path / "t.db", *gone)
    assert rows(trace, "launches") == [
        row | {"event": number}
        for row, number in zip(
            rows(kept(DATABASE), "launches"),
            [row["event"] for row in rows(trace, "launches")],
            strict=True,
        )
    ]
    with pytest.raises(MalformedTrace, match="without dispatches, copies or regions"):
        changed(tmp_path / "none.db", *gone, "DELETE FROM rocpd_region")
