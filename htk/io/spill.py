"""Large tables out of memory while a file is still being read: each goes to a file without a name,
and is mapped from there."""

import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

_LARGE_BYTES = 8 << 20  # a smaller table is not worth a file


class Spill:
    """Files without names in a folder; they are gone with what is mapped of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the table, mapped where it is large and the disk takes it."""
        if table.get_total_buffer_size() < _LARGE_BYTES or os.name != "posix":
            return table
        with suppress(OSError):  # a full disk: it stays in memory
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder) as file:
                with pa.ipc.new_stream(pa.PythonFile(file, "w"), table.schema) as writer:
                    writer.write_table(table)
                file.flush()
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return pa.ipc.open_stream(pa.py_buffer(content)).read_all()
        return table
