"""Tables on disk as a dataset partitioned by rank, which any tool can read, and read back."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.csv_text import write_csv
from htk.base.core.parser import Parsed
from htk.base.io.entry import MemoryEntry
from htk.base.io.temporary import temporary_name
from htk.base.mappings import NamedTables
from htk.base.schema import TABLES
from htk.traces.trace.file import TraceFile
from htk.traces.trace.trace import Trace

_NO_RANK = "__HIVE_DEFAULT_PARTITION__"


def write_dataset(
    trace: Trace, names: Iterable[str], folder: Path, form: str, *, raw: bool = False
) -> dict[str, int]:
    """Write tables that hold rows as folder/NAME/rank=R/part-0.FORM; says how many rows.

    Each file appears whole, and the table of ranks, without which a dataset is none, comes last.
    `raw`: texts in CSV stay as they are, also those that a spreadsheet takes for formulas."""
    written = {}
    for name in sorted(names, key=lambda name: name == "ranks"):
        table = trace.tables[name]
        if table.num_rows:
            written[name] = table.num_rows
            for where, piece in _split_by_rank(table):
                _write_table(piece, folder / name / f"{where}.{form}", form, raw=raw)
    return written


def _split_by_rank(table: pa.Table) -> Iterable[tuple[str, pa.Table]]:
    """A piece for each rank and cycle; the rank is in the folder's name, not in the file."""
    if "rank" not in table.column_names:
        yield "part-0", table
        return
    for rank in pc.unique(table["rank"]).to_pylist():
        of_rank = pc.is_null(table["rank"]) if rank is None else pc.equal(table["rank"], rank)
        rows = table.filter(of_rank)
        yield f"{_name_partition(rank)}/part-0", rows.drop_columns(["rank"])


def _name_partition(rank: int | None) -> str:
    return f"rank={_NO_RANK if rank is None else rank}"


def _write_table(table: pa.Table, path: Path, form: str, *, raw: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(temporary_name())
    try:
        if form == "parquet":
            from pyarrow import parquet

            parquet.write_table(table, temporary, compression="zstd")
        elif form == "arrow":
            with pa.ipc.new_file(str(temporary), table.schema) as writer:
                writer.write_table(table.unify_dictionaries())
        else:
            write_csv(table, temporary, raw=raw)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_dataset(folder: Path) -> Trace:
    """The trace that a whole Parquet dataset was written from; a table is read when it is asked
    for. Files of one rank and cycle are one, for nothing in the rows tells them apart."""
    from pyarrow import parquet

    parts: dict[tuple[int | None, int], TraceFile] = {}
    for path in sorted(folder.glob("ranks/rank=*/*.parquet")):
        name = path.parent.name.removeprefix("rank=")
        rank = None if name == _NO_RANK else int(name)
        for row in parquet.ParquetFile(path).read().to_pylist():
            entry = MemoryEntry(Parsed(_Stored(folder, rank, row["cycle"]), facts=row))
            part = TraceFile(
                entry,
                row["file"],
                rank,
                row["cycle"],
                rank_from=row["rank_from"] or "",
                format=row["format"] or "",
                file_bytes=row["file_bytes"],
            )
            parts.setdefault((rank, row["cycle"]), part)
    ordered = sorted(parts.values(), key=lambda p: (p.rank is None, p.rank or 0, p.cycle))
    return Trace(tuple(ordered))


class _Stored(NamedTables):
    """Tables of one rank and cycle of a dataset, each read when it is asked for."""

    def __init__(self, folder: Path, rank: int | None, cycle: int) -> None:
        self._folder = folder
        self._rank = rank
        self._cycle = cycle
        self._read: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._read:
            self._read[name] = self._read_stored(name)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        yield from TABLES

    def __len__(self) -> int:
        return len(TABLES)

    def _read_stored(self, name: str) -> pa.Table:
        from pyarrow import parquet

        own = pa.schema([field for field in TABLES[name] if field.name != "rank"])
        path = self._folder / name / _name_partition(self._rank) / "part-0.parquet"
        if not path.exists():
            return own.empty_table()
        table = parquet.ParquetFile(path).read()
        if "cycle" in table.column_names:
            table = table.filter(pc.equal(table["cycle"], self._cycle))
        return table.select(own.names).cast(own)
