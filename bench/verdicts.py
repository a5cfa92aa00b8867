"""Which recordings do what-ifs answer, and why not the others?

usage: python bench/verdicts.py FOLDER [-o docs/public_traces.md]

Every recording under a folder is judged as `htk whatif` judges it, and asked what it asks without
any edit and some edits besides. Files of a folder that are of different ranks are one recording.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from htk.base.errors import HtkError, MissingTable, UnknownFormat, UsageError
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from htk.whatif.answer import Answer
from htk.whatif.baseline import build_baseline
from htk.whatif.recorded_step import Baseline
from htk.whatif.sweep import BOUNDS, try_edits

EDITS = (
    *BOUNDS,
    *(("batch", "2x"), ("batch", "0.5x"), ("hardware", "h200"), ("network", "bandwidth=2x")),
    *(("accumulation", "2x"), ("checkpointing", "on"), ("sharding", "ddp"), ("world", "16")),
)
HEAD = """# What-ifs on public traces

Traces that others published, most of them made to test other tools, as `htk whatif` judges them
([what the verdicts mean](whatif.md#method)). Written by `python bench/verdicts.py`.

"""


@dataclass(frozen=True)
class Row:
    recording: str
    verdict: str  # trusted, indicative, refused; or "none": no step to replay
    why: str
    answered: int = 0
    unasked: int = 0  # what-ifs that mean nothing there: no communication, no backward pass
    guards: tuple[str, ...] = ()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    text = page(arguments.folder)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


def page(folder: Path) -> str:
    """Return the page of all recordings below a folder."""
    rows = [judged(name, trace) for name, trace in recordings(folder)]
    both = [row for row in rows if row.verdict != "none"]
    answered = [row for row in both if row.verdict != "refused"]
    lines = [
        f"Of {len(both)} recordings that hold both sides of a step, CPU calls and GPU activities, "
        f"{len(answered)} are answered ({100 * len(answered) / max(len(both), 1):.0f} %); "
        f"{len(rows) - len(both)} more hold one side alone. Each is asked {len(EDITS)} what-ifs; "
        "those that mean nothing to it, such as a network without communication, are not counted "
        "as refused.",
        "",
        "| recording | verdict | why | answered | refused by a guard |",
        "|---|---|---|--:|---|",
    ]
    lines += [_line(row) for row in rows]
    return HEAD + "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    guards = "; ".join(row.guards) or "–"
    asked = len(EDITS) - row.unasked
    count = f"{row.answered} of {asked}" if row.verdict != "none" else "–"
    cells = (row.recording, row.verdict, row.why or "–", count, guards)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def recordings(folder: Path) -> Iterator[tuple[str, Trace]]:
    """Yield every recording below a folder with its name; what is no trace is left out."""
    for parent in sorted({path.parent for path in folder.rglob("*") if path.is_file()}):
        opened = {path: _opened(path) for path in sorted(parent.iterdir()) if path.is_file()}
        traces = {path: trace for path, trace in opened.items() if trace is not None}
        ranks = [rank for t in traces.values() for rank in t.tables["ranks"]["rank"].to_pylist()]
        if 1 < len(traces) == len(ranks) == len(set(ranks)):
            yield str(parent.relative_to(folder)), open_trace(str(parent))
        else:
            yield from ((str(path.relative_to(folder)), t) for path, t in traces.items())


def _opened(path: Path) -> Trace | None:
    if path.suffix == ".csv":  # reports of other tools on the traces beside them
        return None
    try:
        return open_trace(str(path))
    except UnknownFormat:
        return None


def judged(name: str, trace: Trace) -> Row:
    """Return the verdict on a recording, and how many what-ifs it answers."""
    verdict, why, start = verdict_on(trace)
    if start is None:
        return Row(name, verdict, why)
    answers = [_asked(start, edit) for edit in EDITS]
    refusals = [a for a in answers if a.step_ns is None]
    guards = [a for a in refusals if "guard " in a.verdict]
    return Row(
        name,
        verdict,
        why,
        sum(a.step_ns is not None for a in answers),
        0 if start.refused else len(refusals) - len(guards),
        tuple(f"{' '.join(a.edits[0])}: {a.verdict.partition('; ')[0]}" for a in guards),
    )


def verdict_on(trace: Trace) -> tuple[str, str, Baseline | None]:
    """Return the verdict on a recording, the reason, and its step; None: there is none."""
    try:
        start = build_baseline(trace.tables)
    except (MissingTable, UsageError) as refusal:  # one side alone, or captures alone
        return "none", str(refusal).partition(";")[0], None
    verdict, _, why = start.gate.verdict.partition(": ")
    return verdict, why, start


def _asked(start: Baseline, edit: tuple[str, str]) -> Answer:
    try:
        return try_edits(start, (edit,), None)
    except HtkError as error:
        raise SystemExit(f"{edit}: {error}") from error


if __name__ == "__main__":
    raise SystemExit(main())
