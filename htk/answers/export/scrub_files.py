"""The files of a trace scrubbed into a folder, and checked there."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from htk.answers.export.rewrite import Written, kineto_parts, write_runs
from htk.answers.export.scrub import Replacements
from htk.answers.export.scrub_check import check_removed_texts
from htk.base.core.humanize import parse_pattern
from htk.base.core.parser import Source
from htk.traces.trace.trace import Trace


@dataclass(frozen=True)
class Scrubbed:
    """What was written, how many texts were replaced, and which ones stayed on request."""

    files: list[Written]
    removed: int
    kept: list[str]


def scrub_files(
    trace: Trace, sources: Mapping[str, Source], folder: Path, keep: str | None = None
) -> Scrubbed:
    """Write a scrubbed copy of each file; none stays if a check finds what should be gone."""
    replacements = _collect_replacements(trace, keep)
    written: list[Written] = []
    try:
        # Cycles and processes of one file are written together.
        first_parts = {file.file: file for file in reversed(kineto_parts(trace.files))}.values()
        for number, file in enumerate(reversed(first_parts)):
            name = f"file{number}" if file.rank is None else f"rank{file.rank}"
            again = f".{file.cycle}" if file.cycle else ""
            target = folder / f"{name}{again}.pt.trace.json.gz"
            source = sources[file.file]
            written.append(write_runs(source, target, replacements.header, replacements.events))
        check_removed_texts([each.file for each in written], replacements.removed)
    except BaseException:
        for each in written:
            each.file.unlink(missing_ok=True)
        raise
    return Scrubbed(written, len(replacements.removed), sorted(replacements.kept))


def _collect_replacements(trace: Trace, keep: str | None) -> Replacements:
    parse_pattern(keep or "", "--keep")
    kernels = trace.tables["kernels"]
    launched = kernels.filter(pc.equal(kernels["activity"], "kernel"))
    return Replacements(
        launched["name"].unique().to_pylist(),
        trace.tables["python_calls"]["name"].unique().to_pylist(),
        trace.tables["cpu_ops"]["name"].unique().to_pylist(),
        trace.tables["annotations"]["name"].unique().to_pylist(),
        keep,
    )
