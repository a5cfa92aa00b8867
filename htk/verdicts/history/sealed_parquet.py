"""Tables as Parquet that any tool reads, with a checksum of the whole file among its metadata.

Parquet's own checksums are those of pages: what describes them, names of columns and counts of
rows among it, has none.
"""

import io
import re
import zlib

import pyarrow as pa

from htk.verdicts.history.tables import VERSION

_MOST_ROWS = 100_000
_MOST_UNPACKED = 256 << 20
_VERSION_KEY = b"htk.history.version"
_SEAL_KEY = b"htk.history.seal"
_SEAL = re.compile(rb"crc32=([0-9a-f]{8})")
_UNSEALED = b"crc32=00000000"  # as it is where the checksum is taken
_FIRST_SEALED = 2  # version


def pack_table(table: pa.Table, name: str) -> bytes:
    """Return a table as a Parquet file that will be called so."""
    from pyarrow import parquet

    own = {_VERSION_KEY: str(VERSION).encode(), _SEAL_KEY: _UNSEALED}
    metadata = {**(table.schema.metadata or {}), **own}
    target = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata(metadata), target, compression="zstd")
    content = target.getvalue()
    seal = b"crc32=%08x" % zlib.crc32(content, zlib.crc32(name.encode()))
    before, _, after = content.rpartition(_UNSEALED)
    return before + seal + after


def unpack_table(content: bytes, name: str, schema: pa.Schema) -> pa.Table:
    """Return a table that was packed: its columns, of their types; older ones lack some."""
    from pyarrow import parquet

    file = parquet.ParquetFile(io.BytesIO(content))
    written = file.schema_arrow  # which is made anew each time that it is asked for
    version = int((written.metadata or {}).get(_VERSION_KEY, b"0"))
    if not 1 <= version <= VERSION:
        raise ValueError(f"written as version {version}; this htk reads 1 to {VERSION}")
    if version >= _FIRST_SEALED and not _is_whole(content, name):
        raise ValueError("not what was written: its checksum differs")
    if file.metadata.num_rows > _MOST_ROWS:
        raise ValueError(f"{file.metadata.num_rows:,} rows, at most {_MOST_ROWS:,} were expected")
    groups = range(file.metadata.num_row_groups)
    if sum(file.metadata.row_group(k).total_byte_size for k in groups) > _MOST_UNPACKED:
        raise ValueError(f"over {_MOST_UNPACKED >> 20} MiB unpacked")
    names = [name for name in schema.names if name in written.names]
    read = file.read(columns=names, use_threads=False)  # a column is too small to be handed on
    columns = [
        read[f.name].cast(f.type)
        if f.name in read.column_names
        else pa.nulls(read.num_rows, f.type)
        for f in schema
    ]
    table = pa.table(columns, schema=schema.with_metadata(read.schema.metadata))
    table.validate(full=True)
    return table


def _is_whole(content: bytes, name: str) -> bool:
    """Return whether a sealed file is as it was written."""
    seals = list(_SEAL.finditer(content))
    if not seals:
        return False
    start, end = seals[-1].span()
    unsealed = content[:start] + _UNSEALED + content[end:]
    return int(seals[-1][1], 16) == zlib.crc32(unsealed, zlib.crc32(name.encode()))
