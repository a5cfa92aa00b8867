"""Large tables and arrays out of memory: they lie in files without names, mapped from there."""

import mmap
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from htk.base.core.engine import load_core

_LARGE_BYTES = 8 << 20  # a smaller table is not worth a file
_SMALLEST_BYTES = 256 << 10  # nor is a smaller array
_COLUMNS_BYTES = 64 << 20  # of the files being read, packed or not, that stay in memory


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
                begin_writing(file)
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return pa.ipc.open_stream(pa.py_buffer(content)).read_all()
        return table


def begin_writing(file: IO[bytes]) -> None:
    """Ask the system to write what a file holds, and do not wait for it: until then its pages are
    memory that nothing else can have. Where htk's compiled parts lack, it does so in its time."""
    if compiled := load_core():
        compiled.begin_writing(file.fileno())


def why_arrays_stay() -> str | None:
    """Return why large arrays stay in memory, whatever they take together; None: they need not."""
    if not sys.platform.startswith("linux"):
        return "this system is not Linux"
    return "htk's compiled parts were not installed" if load_core() is None else None


@contextmanager
def arrays_in_files(folder: Path, budget_bytes: int) -> Iterator[None]:
    """Put NumPy's arrays that are made in the block, and columns being parsed, in files in the
    folder once large ones in memory take the budget together. Where the system or the disk does
    not allow it they stay in memory."""
    compiled = load_core()
    if compiled is None or why_arrays_stay() or not _is_made(folder):
        yield
        return
    compiled.spill_beyond(str(folder), budget_bytes, _SMALLEST_BYTES)
    functions = _numpy_functions()
    before = compiled.set_array_memory(functions, compiled.array_memory())
    try:
        yield
    finally:
        compiled.set_array_memory(functions, before)


def columns_in_files(folder: Path) -> AbstractContextManager[None]:
    """Keep what a file is read into in files of the folder beyond a fixed size, so that memory
    does not grow with the file, nor with what it unpacks to."""
    return arrays_in_files(folder, _COLUMNS_BYTES)


def _is_made(folder: Path) -> bool:
    """Return whether there is such a folder, now that it was asked for."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:  # a home that is read-only, or none at all, as in containers
        return False
    return True


def _numpy_functions() -> Any:
    """Return the capsule of NumPy's C functions."""
    import numpy as np

    package = np._core if hasattr(np, "_core") else np.core
    return package._multiarray_umath._ARRAY_API
