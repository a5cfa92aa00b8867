"""Where ranks stand in Python, from py-spy, faulthandler and torch's debug server."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from htk.base.core.humanize import format_duration
from htk.base.mappings import Facts
from htk.quantities.measures.desync import name_ranks
from htk.quantities.measures.post_mortem.finding import Finding

_MOST_PLACES = 8
_ONE_DUMP_NS = 10**9  # between threads of one dump, where a launcher stamps each line
_STACKS = "python_stacks"
_LIBRARIES = (
    *("site-packages", "/torch/", "(torch/", "/lib/python", "(<frozen"),
    *("(threading.py", "(selectors.py", "(queue.py"),
    *("(libc.", "(libpthread.", "(libcuda.", "(??"),
)
_COLLECTIVE = re.compile(
    r"^(\w{1,99}) \(\S{0,1024}torch/distributed/distributed_c10d\.py:\d{1,9}\)$"
)
_WAIT = re.compile(r"^c10d::\S{0,255}Work\w{0,99}::(?:wait|synchronize)\w{0,99}(?= )")

Row = Facts


def stacks_of(python_stacks: pa.Table, findings: Iterable[Finding]) -> list[Finding]:
    """Return where main threads stand, ranks of the findings first, ranks at one line together.

    Of several dumps the newest counts, and it is said for how long a rank has stood there.
    """
    asked = {rank for finding in findings for rank in finding.ranks}
    places: dict[str, list[tuple[Any, Row]]] = defaultdict(list)
    for rank, dumps in _dumps_of_ranks(python_stacks):
        places[f"{_describe_standing(dumps[-1]['frames'])}{_describe_duration(dumps)}"].append(
            (rank, dumps[-1])
        )
    order = sorted(places.items(), key=lambda p: not asked & {rank for rank, _ in p[1]})
    return [_build_finding(where, stood) for where, stood in order[:_MOST_PLACES]]


def _build_finding(where: str, stood: list[tuple[Any, Row]]) -> Finding:
    ranks = sorted({rank for rank, _ in stood if rank is not None})
    some = [f"process {row['process'] or 'of unknown rank'}" for rank, row in stood if rank is None]
    who = name_ranks(ranks) if ranks else ", ".join(some[:4])
    words = f"{who} {'stands' if len(stood) == 1 else 'stand'} in {where}."
    frames = stood[0][1]["frames"]
    return Finding("evidence", tuple(ranks), None, None, words, frames, False, source=_STACKS)


def outside_of_collectives(python_stacks: pa.Table) -> Finding | None:
    """Return the ranks that stand elsewhere while others wait in a collective; never decided.

    Stacks do not tell which call of which group the others wait in.
    """
    waiting: list[int] = []
    elsewhere: list[int] = []
    polled = 0
    for rank, dumps in _dumps_of_ranks(python_stacks):
        if rank is not None:
            is_waiting = _own_and_collective(dumps[-1]["frames"])[1] is not None
            (waiting if is_waiting else elsewhere).append(rank)
            polled = max(polled, len(dumps))
    if not waiting or not elsewhere:
        return None
    verb = "waits" if len(waiting) == 1 else "wait"
    words = (
        f"{name_ranks(elsewhere)} {'stands' if len(elsewhere) == 1 else 'stand'} outside of any "
        f"collective while {name_ranks(waiting)} {verb} in one, by their Python stacks, which do "
        "not tell in which."
    )
    words += "" if polled > 1 else " It may only be slower: a second dump a minute later tells."
    ranks = tuple(sorted(elsewhere))
    return Finding("missing_rank", ranks, None, None, words, decided=False, source=_STACKS)


def _dumps_of_ranks(python_stacks: pa.Table) -> list[tuple[Any, list[Row]]]:
    """Return the main threads of each rank (None: of a process without one), oldest first."""
    threads: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in python_stacks.to_pylist():
        if row["source"] == _STACKS and row["frames"]:
            has_rank = row["rank"] is not None
            threads[(row["rank"],) if has_rank else (None, row["host"], row["process"])].append(row)
    return [(key[0], _main_threads(some)) for key, some in threads.items()]


def _main_threads(threads: list[Row]) -> list[Row]:
    """Return the main thread of each dump, oldest first."""
    timed = sorted((row for row in threads if row["time_ns"]), key=lambda row: row["time_ns"])
    dumps: list[list[Row]] = []
    for row in timed:
        if not dumps or row["time_ns"] - dumps[-1][-1]["time_ns"] > _ONE_DUMP_NS:
            dumps.append([])
        dumps[-1].append(row)
    return [_main_thread(dump) for dump in dumps or [threads]]


def _main_thread(threads: list[Row]) -> Row:
    """py-spy names it; faulthandler puts it last, or says which one is current."""
    main = [t for t in threads if t["thread_name"] == "MainThread"]
    return (main or [threads[-1]])[0]


def _describe_duration(dumps: list[Row]) -> str:
    """Return how long the newest dump's line has been stood at, in words; empty: one dump."""
    if len(dumps) < 2:
        return ""
    last = dumps[-1]
    same = len(dumps)
    while same and dumps[same - 1]["frames"] == last["frames"]:
        same -= 1
    alike = dumps[same:]
    if len(alike) == 1:
        return f", where it was not in the dump before ({len(dumps)} dumps)"
    length = format_duration(last["time_ns"] - alike[0]["time_ns"])
    return f", still there after {length} ({len(alike)} dumps in a row)"


def _describe_standing(frames: str) -> str:
    own, collective = _own_and_collective(frames)
    is_called = collective is not None and not own.startswith(collective)
    return f"{collective}, called at {own}" if is_called else own


def _own_and_collective(frames: str) -> tuple[str, str | None]:
    """Return the innermost frame that is not of a library, and the collective that it calls, or
    what it is itself where it waits for one in C++."""
    lines = frames.split("\n")
    own = next((f for f in lines if not any(part in f for part in _LIBRARIES)), lines[0])
    called = lines[: lines.index(own)]
    collective = next((m[1] for f in reversed(called) if (m := _COLLECTIVE.match(f))), None)
    waits = _WAIT.match(own)
    return own, waits[0] if waits else collective
