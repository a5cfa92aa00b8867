"""Recordings of other tools as files of PyTorch's profiler, which are trimmed, scrubbed and merged.

A selection's tables are drawn as Perfetto's trace, and that is told again as Kineto's JSON: one
writer, one reader, and what both keep is held by their tests.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from htk.answers.export.perfetto_trace import write_perfetto
from htk.answers.export.rewrite import sources_of
from htk.base.core.parser import Source
from htk.base.errors import MissingTable, TraceError
from htk.base.mappings import Fields
from htk.parsers import kineto
from htk.parsers.common.log_records import Issues
from htk.parsers.kineto_perfetto import tell_as_kineto
from htk.quantities.derived.cut_header import KEY, header_of
from htk.traces.trace.opening import Inputs, OpenOptions, open_trace
from htk.traces.trace.selection import cut_of
from htk.traces.trace.trace import Trace


@contextmanager
def as_kineto(trace: Trace, inputs: Inputs) -> Iterator[tuple[Trace, dict[str, Source]]]:
    """Yield a trace and its files. Where none is PyTorch's, what the selection leaves is told again
    as one file a rank."""
    if any(file.format == kineto.NAME for file in trace.files):
        yield trace, sources_of(inputs)
        return
    with TemporaryDirectory(prefix="htk-") as folder:
        files = [_retell_rank(trace, rank, Path(folder)) for rank in trace.ranks]
        yield open_trace(files, OpenOptions(cache=False)), sources_of(files)


def _retell_rank(trace: Trace, rank: int, folder: Path) -> Path:
    chosen = trace.sel(ranks=[rank])
    try:
        drawn, _ = write_perfetto(chosen, folder / f"drawn{rank}", align=False)
    except MissingTable:
        formats = ", ".join(sorted({file.format for file in chosen.selected_files}))
        raise TraceError(
            f"a recording of {formats} has no events on a timeline to write; "
            "send the file itself, or an answer: htk QUESTION PATH -o FILE.csv"
        ) from None
    target = folder / f"rank{rank}.json"
    cut = {KEY: [_tell_cut(chosen)]} if chosen.selection.narrows else {}
    target.write_bytes(tell_as_kineto(drawn.read_bytes(), Issues(), cut))
    drawn.unlink()
    return target


def _tell_cut(chosen: Trace) -> Fields:
    """Return what tells of the cut of a rank, on the clock of the trace."""
    part = chosen.selected_files[0]
    facts = cut_of(part, chosen.selection, chosen.origin_ns).header_facts
    for name in ("start_ns", "end_ns"):
        time = facts.get(name)
        if isinstance(time, int):
            facts[name] = time + part.shift_ns
    return header_of({name: chosen.tables[name] for name in ("cut_windows", "passing")}, facts)
