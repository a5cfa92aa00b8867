"""What torch's debug server says of each rank: its waits, its health, whether it answers."""

from collections import defaultdict

import pyarrow as pa

from htk.base.core.humanize import format_duration
from htk.base.mappings import Fields
from htk.quantities.measures.desync import name_ranks
from htk.quantities.measures.post_mortem.finding import Finding

_SERVER = "debug_server"
_WORDS = {
    "WAITS": "{who} {is} {text}",
    "HEALTH": "torch's health check calls the backends of {who} {text}",
    "NO_ANSWER": "{who}: {text}",
}


def states_of_workers(comm_notes: pa.Table) -> list[Finding]:
    """Return the newest state of each rank, ranks of one state together."""
    dumps: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for row in comm_notes.to_pylist():
        if row["source"] == _SERVER and row["rank"] is not None:
            dumps[row["level"], row["rank"]].append((row["time_ns"] or 0, row["text"]))
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (level, rank), states in dumps.items():
        alike[level, f"{max(states)[1]}{_describe_duration(states)}"].append(rank)
    order = list(_WORDS)
    by_level = sorted(alike.items(), key=lambda item: (-order.index(item[0][0]), item[1]))
    return [_build_finding(level, text, ranks) for (level, text), ranks in by_level]


def _build_finding(level: str, text: str, ranks: list[int]) -> Finding:
    is_one = len(ranks) == 1
    facts: Fields = {"who": name_ranks(ranks), "text": text, "is": "is" if is_one else "are"}
    words = f"{_WORDS[level].format_map(facts)}."
    return Finding("evidence", tuple(ranks), None, None, words, decided=False, source=_SERVER)


def _describe_duration(states: list[tuple[int, str]]) -> str:
    """Return for how long the newest state has lasted, in words; empty: one dump tells of it."""
    newest_first = sorted(states, reverse=True)
    latest, text = newest_first[0]
    earliest = latest
    for time, other in newest_first:
        if other != text:
            break
        earliest = time
    return f" (for {format_duration(latest - earliest)})" if earliest < latest else ""
