"""What parsers of logs hand to `table_of` is in the table that it makes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.base.core.parser import ParseOptions, Parser
from htk.base.io.sources import read_head, resolve_inputs
from htk.parsers import list_parsers
from htk.parsers.common import log_records

SAMPLES = Path(__file__).parents[3] / "sample_traces"
# Those that write rows; the others write columns.
WRITERS = (
    "execution_trace", "flight_recorder", "inspector", "inspector_prometheus", "job_layout",
    "job_log", "kernel_stacks", "link_metrics", "memory_snapshot", "nccl_debug", "nccl_tests",
    "profiler_plugin", "python_stacks", "ras", "rccl_replay", "watchdog",
)  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_every_key_of_a_row_is_a_column(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows_seen, lost = 0, set()
    table = log_records._build_table

    def watched(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
        nonlocal rows_seen
        rows_seen += len(rows)
        lost.update(key for row in rows for key in row if key not in schema.names)
        return table(rows, schema)

    monkeypatch.setattr(log_records, "_build_table", watched)
    parser = {each.NAME: each for each in list_parsers()}[name]
    for path in sorted((SAMPLES / name).rglob("*")):
        if path.is_file() and path.name != "README.md" and path.stat().st_size:
            _parse(parser, path)
    assert rows_seen and not lost


def test_a_value_that_its_column_cannot_hold_leaves_the_rest_of_its_row() -> None:
    rows = [{"group": "tp", "group_size": 1 << 40}, {"group": "dp", "group_size": 4}]
    made = log_records.table_of("comm_groups", rows, of_one_rank=False)
    assert made["group_size"].to_pylist() == [None, 4]
    assert made["group"].to_pylist() == ["tp", "dp"]


def test_a_table_of_one_rank_has_no_column_of_ranks() -> None:
    made = log_records.table_of("comm_groups", [{"group": "tp"}], of_one_rank=True)
    assert "rank" not in made.column_names and "cycle" not in made.column_names


def _parse(parser: Parser, path: Path) -> None:
    for source in resolve_inputs(path):
        if parser.sniff(read_head(source)):
            parser.parse(source, ParseOptions())
