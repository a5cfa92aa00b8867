"""What torch's debug server dumps and shows: by hand, from its samples and made pages."""

import json
from typing import Any

from htk.parsers import debug_server
from tests.parsers.log_files import parsed, readings, rows, sample, values

MINUTE = 60 * 10**9


def page(handler: str, *parts: str) -> str:
    """Return a page of the server's: a part for each rank, as its template writes it."""
    ranks = "".join(
        f"        <h2>Rank {rank}: http://node-{rank}:4242/handler/{handler}?</h2>\n"
        f"            <pre>{part}</pre>\n"
        for rank, part in enumerate(parts)
    )
    return f"<!doctype html>\n<section>\n{ranks}</section>\n"


def notes(of: Any) -> list[tuple[Any, ...]]:
    return [values(row, "rank", "level", "text") for row in rows(of, "comm_notes")]


def test_stacks_have_the_rank_of_their_part_and_the_time_of_the_file() -> None:
    early, late = (sample(f"debug_server/stacks_20260505_{at}.txt") for at in ("061500", "061600"))
    frames = [[(r["rank"], r["frames"]) for r in rows(p, "python_stacks")] for p in (early, late)]
    (first, second), (third, _) = ([f for f in of if f[1]] for of in frames)
    assert first[0] == 0 and first[1].split("\n")[2] == "train_step (/app/train.py:39)"
    assert third[1].split("\n")[2] == "train_step (/app/train.py:42)"
    assert second == (1, "read_batch (/app/data.py:8)\ntrain_step (/app/train.py:40)\n"
                         "<module> (/app/train.py:60)")  # fmt: skip
    times = [{r["time_ns"] for r in rows(p, "python_stacks")} for p in (early, late)]
    assert [t - MINUTE for t in times[1]] == [*times[0]] == [1_777_961_700 * 10**9]
    assert notes(early) == [(2, "NO_ANSWER", "its debug server did not answer (status 503)")]
    assert not readings(early)[None, "unknown"]


def test_wait_counters_and_health_checks() -> None:
    assert notes(sample("debug_server/wait_counters_20260505_061700.txt")) == [
        (0, "WAITS", "in c10d.barrier (1 open)"),
        (1, "WAITS", "in none of 1 wait that torch counts"),
    ]
    assert notes(sample("debug_server/c10d_health_check_20260505_061700.txt")) == [
        (0, "HEALTH", "healthy"),
        (1, "HEALTH", "unhealthy: cuda:nccl"),
    ]


def test_pages_are_read_as_dumps_are() -> None:
    stacks = 'Thread 0x1 (most recent call first):\n  File "/a.py", line 3 in f\n'
    found = parsed(debug_server, page("dump_traceback", stacks, stacks), "stacks")
    assert [(r["rank"], r["frames"]) for r in rows(found, "python_stacks")] == [
        (0, "f (/a.py:3)"), (1, "f (/a.py:3)"),
    ]  # fmt: skip
    dump = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": "7", "last_completed_collective": "6"}},
        "entries": [{"profiling_name": "nccl:all_reduce", "collective_seq_id": 7,
                     "process_group": ["0", "default_pg"], "state": "scheduled"}],
    }  # fmt: skip
    recorder = page("fr_trace_json", *[json.dumps(dump, indent=2)] * 2)
    found = parsed(debug_server, recorder, "fr_trace_json")
    assert [values(r, "rank", "seq", "type", "state") for r in rows(found)] == [
        (rank, 7, "all_reduce", "scheduled") for rank in (0, 1)
    ]
    assert [values(r, "rank", "last_completed") for r in rows(found, "comm_groups")] == [
        (0, 6), (1, 6),
    ]  # fmt: skip


def test_a_broken_part_is_an_issue_and_the_others_are_read() -> None:
    found = parsed(debug_server, page("c10d_health_check", '{"healthy": tr', '{"healthy": true}'))
    assert notes(found) == [(1, "HEALTH", "healthy")]
    (issue,) = rows(found, "parse_issues")
    assert issue["kind"] == "broken_part" and "c10d_health_check of rank 0" in issue["text"]
