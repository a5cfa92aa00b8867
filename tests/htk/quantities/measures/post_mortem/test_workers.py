"""What torch's debug server says of ranks, as findings: by hand."""

from typing import Any

import pyarrow as pa

from htk.base.schema import TABLES
from htk.quantities.measures.post_mortem.workers import states_of_workers

SCHEMA = TABLES["comm_notes"]
SECOND = 10**9


def note(rank: int, level: str, text: str, at: int | None = None) -> dict[str, Any]:
    row = {"source": "debug_server", "rank": rank, "level": level, "text": text}
    return row | {"time_ns": None if at is None else at * SECOND}


def said(*notes: dict[str, Any]) -> list[tuple[Any, str]]:
    table = pa.Table.from_pylist([*notes], schema=SCHEMA)
    return [(finding.ranks, finding.words) for finding in states_of_workers(table)]


def test_the_newest_state_counts_and_for_how_long_it_has_lasted() -> None:
    waits = [
        note(0, "WAITS", "in none of 3", 10),
        *(note(0, "WAITS", "in x", at) for at in (30, 50, 90)),
    ]
    assert said(*reversed(waits)) == [((0,), "rank 0 is in x (for 60.0 s).")]


def test_ranks_of_one_state_are_told_together_and_those_that_do_not_answer_first() -> None:
    notes = [note(r, "HEALTH", "healthy") for r in (0, 1, 3)] + [note(2, "NO_ANSWER", "it is away")]
    assert said(*notes, note(0, "WAITS", "in x"), note(1, "WAITS", "in x")) == [
        ((2,), "rank 2: it is away."),
        ((0, 1, 3), "torch's health check calls the backends of ranks 0-1,3 healthy."),
        ((0, 1), "ranks 0-1 are in x."),
    ]


def test_notes_of_others_are_no_states() -> None:
    assert said(note(0, "WAITS", "in x") | {"source": "ras"}) == []
