"""Tables on disk as a dataset partitioned by rank, which any tool can read."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from htk.trace import Trace


def write_dataset(trace: Trace, names: Iterable[str], folder: Path, form: str) -> dict[str, int]:
    """Write tables that hold rows as folder/NAME/rank=R/part-0.FORM; says how many rows."""
    written = {}
    for name in names:
        table = trace.tables[name]
        if table.num_rows:
            written[name] = table.num_rows
            for where, piece in _pieces(table):
                _write(piece, folder / name / f"{where}.{form}", form)
    return written


def _pieces(table: pa.Table) -> Iterable[tuple[str, pa.Table]]:
    """A piece for each rank and cycle; the rank is in the folder's name, not in the file."""
    if "rank" not in table.column_names:
        yield "part-0", table
        return
    for rank in pc.unique(table["rank"]).to_pylist():
        mine = pc.is_null(table["rank"]) if rank is None else pc.equal(table["rank"], rank)
        rows = table.filter(mine)
        where = "__HIVE_DEFAULT_PARTITION__" if rank is None else rank
        yield f"rank={where}/part-0", rows.drop_columns(["rank"])


def _write(table: pa.Table, path: Path, form: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        from pyarrow import parquet

        parquet.write_table(table, path, compression="zstd")
    elif form == "arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table.unify_dictionaries())
    else:
        from pyarrow import csv

        csv.write_csv(plain(table), path)


def plain(table: pa.Table) -> pa.Table:
    """Dictionary columns as plain text, which CSV wants."""
    schema = pa.schema(
        [
            pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type)
            for f in table.schema
        ]
    )
    return table.cast(schema)
