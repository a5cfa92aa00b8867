"""Where ranks stand in Python, from py-spy and faulthandler."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from htk.quantities.measures.desync import named
from htk.quantities.measures.post_mortem.finding import Finding

_MOST_PLACES = 8
_STACKS = "python_stacks"
_LIBRARIES = (
    *("site-packages", "/torch/", "(torch/", "/lib/python", "(<frozen"),
    *("(threading.py", "(selectors.py", "(queue.py"),
)


def stacks_of(python_stacks: pa.Table, findings: Iterable[Finding]) -> list[Finding]:
    """Return where main threads stand, ranks of the findings first, ranks at one line together."""
    rows = [r for r in python_stacks.to_pylist() if r["source"] == _STACKS and r["frames"]]
    threads: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        key = (row["rank"],) if row["rank"] is not None else (None, row["host"], row["process"])
        threads[key].append(row)
    asked = {rank for finding in findings for rank in finding.ranks}
    places: dict[str, list[tuple[Any, Mapping[str, Any]]]] = defaultdict(list)
    for (rank, *_), some in threads.items():
        main = _main_thread(some)
        places[_own_frame(main["frames"])].append((rank, main))
    order = sorted(places.items(), key=lambda p: not asked & {rank for rank, _ in p[1]})
    return [_finding(frame, stood) for frame, stood in order[:_MOST_PLACES]]


def _finding(frame: str, stood: list[tuple[Any, Mapping[str, Any]]]) -> Finding:
    ranks = sorted({rank for rank, _ in stood if rank is not None})
    some = [f"process {row['process']}" for rank, row in stood if rank is None]
    who = named(ranks) if ranks else ", ".join(some[:4])
    words = f"{who} {'stands' if len(stood) == 1 else 'stand'} in {frame}."
    frames = stood[0][1]["frames"]
    return Finding("evidence", tuple(ranks), None, None, words, frames, False, source=_STACKS)


def _main_thread(threads: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """py-spy names it; faulthandler puts it last, or says which one is current."""
    main = [t for t in threads if t["thread_name"] == "MainThread"]
    return (main or [threads[-1]])[0]


def _own_frame(frames: str) -> str:
    """Return the innermost frame that is not of a library."""
    lines = frames.split("\n")
    return next((f for f in lines if not any(part in f for part in _LIBRARIES)), lines[0])
