"""The table of docs/hang.md: scenarios whose truth is known, and what `hang` says of each."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.answers.ask import ask_trace
from htk.base.core.analysis import coverage_of
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.comm.hanging_job import (
    PAGE,
    Dump,
    Job,
    Step,
    answer,
    entry_of,
    sample,
    verdicts,
)

EIGHT = tuple(range(8))
FOUR = tuple(range(4))
_SECOND = 10**9

Dumps = dict[int, Dump]


def loop(ranks: tuple[int, ...] = EIGHT, calls: int = 6) -> Job:
    """Each rank makes the same all_reduce again and again."""
    return Job({r: [Step(ranks, "all_reduce", 1024)] * calls for r in ranks}, timing=False)


def asked(dumps: Dumps) -> pa.Table:
    return answer({rank: pickle.dumps(dump, 2) for rank, dump in dumps.items()})


def size_in_a_loop() -> Dumps:
    job = loop()
    job.programs[2] = [*job.programs[2][:3], Step(EIGHT, "all_reduce", 1000), *job.programs[2][4:]]
    job.ahead = 2
    return job.run()


def dtype_in_a_loop() -> Dumps:
    job = loop()
    half = Step(EIGHT, "all_reduce", 1024, "Half")
    job.programs[6] = [*job.programs[6][:3], half, *job.programs[6][4:]]
    job.ahead = 2
    return job.run()


def extra_call() -> Dumps:
    a, b, c = (Step(FOUR, "all_reduce", n) for n in (16, 32, 64))
    programs = {r: [a, b, c, a, b, c] for r in FOUR}
    programs[1] = [a, a, b, c, a, b, c]
    return Job(programs, ahead=3, timing=False).run()


def skipped_call() -> Dumps:
    a, b, c = (Step(FOUR, "all_reduce", n) for n in (16, 32, 64))
    programs = {r: [a, b, c, a, b, c] for r in FOUR}
    programs[3] = [a, c, a, b, c]
    return Job(programs, ahead=3, timing=False).run()


def swapped_calls() -> Dumps:
    a, b = Step(FOUR, "all_reduce", 16), Step(FOUR, "all_gather", 64)
    programs = {r: [a, b, a] for r in FOUR} | {1: [b, a, a]}
    return Job(programs, ahead=2, timing=False).run()


def missing() -> Dumps:
    job = loop()
    del job.programs[5][4:]
    return job.run()


def crashed() -> Dumps:
    """Rank 5 left nothing behind."""
    dumps = missing()
    del dumps[5]
    return dumps


def network() -> Dumps:
    job = loop()
    job.frozen = {3}
    return job.run()


def two_causes() -> Dumps:
    """Rank 0 is missed by one pair while another pair's call does not end."""
    first, second = (0, 1), (2, 3)
    programs = {r: [Step(first)] * 3 for r in first} | {r: [Step(second)] * 3 for r in second}
    del programs[0][1:]
    job = Job(programs, timing=False)
    dumps = job.run()
    for rank in second:
        for entry in dumps[rank]["entries"][1:]:
            entry["state"] = "scheduled"
        dumps[rank]["pg_status"]["pg2-3x2"]["last_completed_collective"] = 1
    return dumps


def aborted() -> Dumps:
    """The watchdog of ranks 0-2 gave up on the fourth call, which rank 3 never made."""
    job = loop(FOUR)
    del job.programs[3][3:]
    dumps = job.run()
    for rank in (0, 1, 2):
        last = dumps[rank]["entries"][-1]
        created = last["time_created_ns"]
        last |= {"state": "completed", "retired": True, "timeout_ms": 600_000}
        last["time_discovered_completed_ns"] = created + 601 * _SECOND
        (counters,) = dumps[rank]["pg_status"].values()
        counters["last_completed_collective"] = 4
    return dumps


def overflow() -> Dumps:
    """Rings of four records, far behind the call that hangs: the fifty-first."""
    job = loop(EIGHT, 61)
    job.ahead = 10
    del job.programs[5][50:]
    dumps = job.run()
    for dump in dumps.values():
        dump["entries"] = dump["entries"][-4:]
    return dumps


def uneven_gather() -> Dumps:
    job = loop(FOUR, 3)
    for program in job.programs.values():
        program[1] = Step(FOUR, "all_gather", 100)
    del job.programs[2][2:]
    dumps = job.run()
    for rank, dump in dumps.items():
        dump["entries"][1] |= {"input_sizes": [[100 + rank]], "output_sizes": [[406]]}
    return dumps


def uneven_and_stuck() -> Dumps:
    job = loop(FOUR, 3)
    for program in job.programs.values():
        program[1] = Step(FOUR, "all_gather", 100)
    job.frozen = {1}
    dumps = job.run()
    for rank, dump in dumps.items():
        dump["entries"][1] |= {"input_sizes": [[100 + rank]], "output_sizes": [[406]]}
    return dumps


def completed_difference() -> Dumps:
    """Rank 1's second call had another element type and went through; rank 3 is the one to find."""
    job = loop(FOUR, 5)
    del job.programs[3][4:]
    dumps = job.run()
    dumps[1]["entries"][1] |= {"input_dtypes": ["Int"], "output_dtypes": ["Int"]}
    return dumps


def batch() -> Dumps:
    """A ring: each rank sends to the next and receives from the one before, in one batch."""
    job = loop(FOUR, 2)
    dumps = job.run()
    for rank, dump in dumps.items():
        if rank == 2:
            continue
        after, before = (rank + 1) % 4, (rank - 1) % 4
        step = Step(FOUR, "all_reduce", 16)
        for k, name in enumerate((f"nccl:send {rank}->{after}", f"nccl:recv {rank}<-{before}")):
            member = {"profiling_name": name, "is_p2p": True, "p2p_seq_id": 1}
            dump["entries"].append(entry_of(2 + k, step, 2, "scheduled") | member)
        end = {"profiling_name": "nccl:coalesced", "is_p2p": True, "p2p_seq_id": 1}
        closing = entry_of(4, step, 2, "scheduled") | end | {"input_sizes": [], "output_sizes": []}
        dump["entries"].append(closing)
    return dumps


def hooked() -> Dumps:
    """A recorder whose calls stay scheduled and are retired when done; rank 3 is missing."""
    job = loop(FOUR)
    del job.programs[3][3:]
    dumps = job.run()
    for dump in dumps.values():
        for entry in dump["entries"]:
            done = entry["state"] == "completed"
            name = entry["profiling_name"].replace("nccl:", "nccl2:")
            entry |= {"state": "scheduled", "retired": done, "profiling_name": name}
        dump["pg_status"] = {}
    return dumps


def strided() -> Dumps:
    ranks = tuple(range(0, 64, 8))
    job = Job({r: [Step(ranks)] * 4 for r in ranks}, timing=False)
    job.frozen = {2}
    return job.run()


def mesh() -> dict[int, list[Step]]:
    """Rows and columns of a 2 x 2 mesh in turn."""
    row = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    column = {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}
    return {r: [Step(row[r]), Step(column[r], "all_reduce", 16)] * 3 for r in FOUR}


def wrong_group() -> Dumps:
    """Rank 1 makes its fifth call in its column instead of its row."""
    programs = mesh()
    programs[1][4] = programs[1][5]
    return Job(programs, timing=False).run()


def mesh_missing() -> Dumps:
    """Rank 3 leaves after four calls: all others keep to the pattern."""
    programs = mesh()
    del programs[3][4:]
    return Job(programs, timing=False).run()


def ended() -> Dumps:
    return loop(FOUR).run()


MADE: dict[str, Callable[[], Dumps]] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__annotations__", {}).get("return") is Dumps
}


def table() -> dict[str, str]:
    """Verdicts of the documented table by the name of their scenario."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    others = ("log_", "ras_", "stack_", "dumps_")
    return {name: verdict for name, verdict in rows if not name.startswith(others)}


@pytest.mark.parametrize(("name", "expected"), table().items())
def test_the_documented_verdict(name: str, expected: str) -> None:
    found = sample(name) if name.startswith("gloo_") else asked(MADE[name]())
    assert "; ".join(f"{what} {ranks}" for what, ranks in verdicts(found)) == expected
    texts = " ".join(found["text"].to_pylist())
    assert ("the network or a GPU, not the program" in texts) == ("not_completed" in expected)


def test_every_scenario_is_documented() -> None:
    assert set(MADE) <= set(table())


def first(dumps: Dumps) -> dict[str, Any]:
    row: dict[str, Any] = asked(dumps).to_pylist()[0]
    return row


def test_the_number_is_that_of_the_stuck_call() -> None:
    assert first(overflow())["seq"] == 51
    assert first(missing())["seq"] == 5
    assert first(aborted())["seq"] == 4
    assert first(hooked())["seq"] == 4


def test_an_aborted_call_says_after_how_long() -> None:
    assert "ended by its timeout after 601 s" in asked(aborted())["text"].to_pylist()[1]


def test_a_slow_call_after_which_others_completed_was_not_aborted() -> None:
    dumps = missing()
    for dump in dumps.values():
        slow, later = dump["entries"][1:3]
        slow["time_discovered_completed_ns"] = slow["time_created_ns"] + 700 * _SECOND
        later["time_created_ns"] = slow["time_created_ns"] + 701 * _SECOND
        later["time_discovered_completed_ns"] = later["time_created_ns"] + 1
    assert verdicts(asked(dumps)) == [("missing_rank", "5")]
    assert first(dumps)["seq"] == 5


def test_ranks_to_exclude_on_restart() -> None:
    assert coverage_of(asked(missing()))["exclude_ranks"] == "[5]"
    assert coverage_of(asked(crashed()))["exclude_ranks"] == "[5]"
    for program_at_fault in (size_in_a_loop, swapped_calls, network):
        assert not coverage_of(asked(program_at_fault())).get("exclude_ranks")


def test_a_crashed_rank_or_the_network() -> None:
    text, _, next_step = asked(crashed())["text"].to_pylist()
    assert "the flight recorder dumps and logs of rank 5" in next_step
    assert text.startswith("rank 5 left no dump, and all 7 others came to all_reduce number 5")
    assert text.endswith("rank 5 or the network.")


def test_sizes_differ_where_calls_are_alike() -> None:
    text = first(size_in_a_loop())["text"]
    assert "rank 2 calls all_reduce of in 1000 out 1000 elements" in text
    assert text.endswith("rank 2 at fault.")


@pytest.mark.parametrize(
    ("scenario", "words"),
    [(extra_call, "makes a call"), (skipped_call, "skips one"), (swapped_calls, "swaps two")],
)
def test_order(scenario: Callable[[], Dumps], words: str) -> None:
    assert words in first(scenario())["text"]


def test_members_are_known_from_another_dump() -> None:
    dumps = missing()
    dumps[0]["pg_config"] = {}
    assert verdicts(asked(dumps)) == [("missing_rank", "5")]


def test_members_inferred_from_calls_blame_no_network() -> None:
    dumps = network()
    for dump in dumps.values():
        dump["pg_config"] = {}
    found = asked(dumps)
    assert verdicts(found) == [("cannot_decide", "0-7")] and not coverage_of(found)["decided"]


def test_several_polls_tell_who_moved(tmp_path: Path) -> None:
    """Ranks 0 and 1 go on, rank 2 waits for rank 3 in both polls: its dumps are alike."""
    for poll, calls in (("early", 4), ("late", 6)):
        (tmp_path / poll).mkdir()
        programs = {r: [Step((0, 1))] * calls for r in (0, 1)}
        programs |= {2: [Step((2, 3))] * 3, 3: [Step((2, 3))]}
        for rank, dump in Job(programs, timing=False).run().items():
            path = tmp_path / poll / f"comm_lib_trace_rank_{rank}"
            path.write_bytes(pickle.dumps(dump, 2))
    found = ask_trace(open_trace(tmp_path, OpenOptions(cache=False)), "hang")
    assert verdicts(found) == [("missing_rank", "3"), ("note", "")]
    assert found["text"].to_pylist()[-1] == (
        "Between their first and their last dump ranks 0-1 went on; of ranks 2-3 there is one "
        "dump, or alike ones."
    )


def test_the_newest_poll_is_judged(tmp_path: Path) -> None:
    """Rank 5 is late in the first poll; in the second it came, and rank 6 is missing."""
    for poll, absent, reached in (("1", 5, 2), ("2", 6, 4)):
        (tmp_path / poll).mkdir()
        job = loop()
        del job.programs[absent][reached:]
        for rank, dump in job.run().items():
            path = tmp_path / poll / f"comm_lib_trace_rank_{rank}"
            path.write_bytes(pickle.dumps(dump, 2))
    found = ask_trace(open_trace(tmp_path, OpenOptions(cache=False)), "hang")
    assert verdicts(found)[0] == ("missing_rank", "6") and found["seq"][0].as_py() == 5
    assert found["text"].to_pylist()[-1].endswith("ranks 0-7 went on.")
