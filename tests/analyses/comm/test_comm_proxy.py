"""Proxy steps beside the profiler's collectives, against a job whose truth is known."""

from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.base.errors import MissingTable
from htk.quantities.measures.channel_hops import paired_communicators
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.comm.proxied_job import (
    HASHES,
    Call,
    clock,
    job,
    parts_by_hand,
    write_profiles,
    write_records,
)

Row = dict[str, Any]
NODE = {"send": ("gpu_wait", "peer_wait", "network"), "receive": ("gpu_wait", "data_wait", "flush")}


def answer(folder: Path, **options: Any) -> Result:
    return ask_trace(
        open_trace([str(folder)], OpenOptions(cache=False)), "comm_proxy", n=0, **options
    )


def checked(row: Row, call_states: list[Any]) -> None:
    """A row's parts are those worked out µs by µs, to the nanoseconds that sharing cannot split."""
    truth = parts_by_hand(call_states)
    close = len(call_states) * 4
    assert row["proxy_ns"] == sum(truth.values())
    for part in ("gpu_wait", "peer_wait", "network", "data_wait", "flush"):
        if part in NODE[row["direction"]]:
            assert abs(row[f"{part}_ns"] - truth.get(part, Fraction(0))) <= close
        else:
            assert row[f"{part}_ns"] is None
    assert sum(row[f"{part}_ns"] for part in NODE[row["direction"]]) == row["proxy_ns"]


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    return job(seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, calls: list[Call]) -> Path:
    """Rank 6 left no file of the plugin, rank 2 no times of the GPU (so that nothing tells which
    records of theirs are which calls of the two); rank 3 lost the first records of its node's ring.
    """
    path = tmp_path_factory.mktemp("proxied")
    write_profiles(path, calls)
    kept = [c for c in calls if not (c.rank == 3 and len(c.members) == 4 and c.seq in (40, 41))]
    write_records(path, kept, without=(6,), no_clock=(2,))
    return path


def joinable(call: Call) -> bool:
    return call.profiled and call.rank != 6 and call.members != (2, 6)


def by_call(calls: list[Call]) -> dict[tuple[int, int], Call]:
    """Profiled calls by rank and start on the rank's clock, in ns."""
    return {(c.rank, 1000 * (c.start + clock(c.rank))): c for c in calls if c.profiled}


def recorded_start(row: Row, offsets: dict[int, int]) -> tuple[int, int]:
    return row["rank"], row["aligned_start_ns"] - offsets[row["rank"]]


@pytest.fixture(scope="module")
def offsets(folder: Path) -> dict[int, int]:
    table = ask_trace(open_trace([str(folder)], OpenOptions(cache=False)), "collective_times").table
    rows = table.filter([s == "kineto" for s in table["source"].to_pylist()]).to_pylist()
    return {r["rank"]: r["clock_offset_ns"] for r in rows}


def test_every_collective_has_the_parts_of_its_own_proxy(folder: Path, calls: list[Call]) -> None:
    """On the ranks' own clocks each row is looked up by rank and start."""
    found = answer(folder, align=False)
    truth = by_call(calls)
    seen = set()
    for row in found.to_pylist():
        call = truth[row["rank"], row["aligned_start_ns"]]
        seen.add((call.rank, call.members, call.function, call.seq, row["direction"]))
        checked(row, [s for s in call.states if s.direction == row["direction"]])
        assert row["duration_ns"] == 1000 * (call.end - call.start)
        assert row["steps"] == 6 and row["collectives"] == 1
        assert row["joined_by"] == ("sequence" if call.rank == 2 else "time")
        assert row["guessed"] is False
    wanted = {
        (c.rank, c.members, c.function, c.seq, d)
        for c in calls
        if joinable(c)
        for d in ("send", "receive")
    }
    assert seen == wanted
    coverage = found.coverage
    profiled = sum(c.profiled for c in calls)
    assert coverage["collectives"] == profiled
    assert coverage["with_proxy_steps"] == len(wanted) // 2
    assert coverage["guessed"] == 0
    assert coverage["ranks_without_proxy_steps"] == "6"
    assert coverage["joined_by"] == {
        "time": sum(joinable(c) and c.rank != 2 for c in calls),
        "sequence": sum(joinable(c) and c.rank == 2 for c in calls),
    }


def test_waits_are_those_on_the_common_clock(
    folder: Path, calls: list[Call], offsets: dict[int, int]
) -> None:
    """Skewed clocks move no proxy to another call, and waits are the true ones."""
    truth = by_call(calls)
    parts: dict[tuple[tuple[int, ...], str, int], list[Call]] = defaultdict(list)
    for call in calls:
        parts[call.members, call.function, call.seq].append(call)
    rows = answer(folder).to_pylist()
    assert len(rows) > 200
    for row in rows:
        call = truth[recorded_start(row, offsets)]
        members = parts[call.members, call.function, call.seq]
        starts = {c.own: c.start for c in members}
        if call.function == "Broadcast":
            last = starts[5]
        elif call.function == "Reduce":
            last = max(starts.values()) if call.own == 3 else call.start
        else:
            last = max(starts.values())
        wait = 1000 * max(last - call.start, 0)
        assert abs(row["wait_ns"] - wait) < 2000
        assert row["wait_ns"] + row["transfer_ns"] == row["duration_ns"]


def communicators(folder: Path) -> dict[tuple[int, ...], int]:
    """The communicator of each group, as the rings of NCCL's log are put on groups by it."""
    tables = open_trace([str(folder)], OpenOptions(cache=False)).tables
    return paired_communicators(tables["collectives"], tables["collective_facts"])


def test_each_group_has_its_own_communicator(folder: Path) -> None:
    wanted = {members: number for members, number in HASHES.items() if members != (2, 6)}
    assert communicators(folder) == wanted


def test_channels_and_links_name_the_peer_by_its_global_rank(
    folder: Path, calls: list[Call]
) -> None:
    truth = by_call(calls)
    rows = answer(folder, by="channel", align=False).to_pylist()
    assert {r["channel"] for r in rows} == {0, 1}
    for row in rows:
        call = truth[row["rank"], row["aligned_start_ns"]]
        states = [
            s for s in call.states if (s.direction, s.channel) == (row["direction"], row["channel"])
        ]
        checked(row, states)
        assert row["peer"] == call.members[states[0].peer] and row["steps"] == 3
    links = {
        (r["rank"], r["direction"], r["peer"]): r for r in answer(folder, by="link").to_pylist()
    }
    sums: dict[tuple[int, str, int], Fraction] = defaultdict(Fraction)
    count: dict[tuple[int, str, int], int] = defaultdict(int)
    for call in filter(joinable, truth.values()):
        for direction in NODE:
            states = [s for s in call.states if s.direction == direction]
            key = (call.rank, direction, call.members[states[0].peer])
            sums[key] += sum(parts_by_hand(states).values())
            count[key] += 1
    assert links.keys() == sums.keys()
    for key, total in sums.items():
        assert links[key]["proxy_ns"] == total
        assert links[key]["collectives"] == count[key]
        assert links[key]["match"] is None


@pytest.mark.parametrize("ahead", [-700, 700, 1400])
def test_the_other_ranks_numbers_correct_a_clock_that_is_a_call_off(
    tmp_path: Path, calls: list[Call], ahead: int
) -> None:
    """Calls are 600 to 700 µs apart: by its own times rank 1's are the neighbours' records."""
    rings = [c for c in calls if len(c.members) == 4]
    write_profiles(tmp_path, rings)
    write_records(tmp_path, rings, ahead_us={1: ahead})
    truth = by_call(rings)
    found = answer(tmp_path, align=False)
    rows = found.to_pylist()
    assert len(rows) == 2 * len(truth)
    for row in rows:
        call = truth[row["rank"], row["aligned_start_ns"]]
        checked(row, [s for s in call.states if s.direction == row["direction"]])
    assert found.coverage["guessed"] == 0


def test_without_clocks_order_is_a_guess_and_said_to_be(tmp_path: Path, calls: list[Call]) -> None:
    """Only rings of all: as many records as calls, so that one order fits."""
    wide = [c for c in calls if len(c.members) == 8 and c.profiled]
    write_profiles(tmp_path, wide)
    write_records(tmp_path, wide, no_clock=tuple(range(8)))
    found = answer(tmp_path, align=False)
    truth = by_call(wide)
    for row in found.to_pylist():
        call = truth[row["rank"], row["aligned_start_ns"]]
        checked(row, [s for s in call.states if s.direction == row["direction"]])
        assert (row["joined_by"], row["guessed"]) == ("order", True)
    assert found.coverage["guessed"] == found.coverage["with_proxy_steps"] == len(wide)


def test_without_clocks_groups_that_are_alike_are_guesses_too(
    tmp_path: Path, calls: list[Call]
) -> None:
    """Which of the two communicators is which row of ranks nothing tells; none is both."""
    rings = [c for c in calls if len(c.members) == 4 and c.profiled]
    write_profiles(tmp_path, rings)
    write_records(tmp_path, rings, no_clock=tuple(range(8)))
    found = answer(tmp_path)
    rows = found.to_pylist()
    assert rows and all(r["guessed"] for r in rows)
    assert len({r["rank"] for r in rows}) == 8
    assert communicators(tmp_path) == {}


def test_a_communicator_of_ranks_that_were_not_profiled_is_no_other(
    tmp_path: Path, calls: list[Call]
) -> None:
    """The second node's records beside the first node's profile: alike in all but their times."""
    rings = [c for c in calls if len(c.members) == 4 and c.profiled]
    write_profiles(tmp_path, [c for c in rings if c.rank < 4])
    for rank in range(4, 8):
        (tmp_path / f"rank{rank}.json").unlink()
    write_records(tmp_path, rings)
    truth = by_call(rings)
    rows = answer(tmp_path, align=False).to_pylist()
    assert len(rows) == 2 * sum(c.rank < 4 for c in rings)
    for row in rows:
        call = truth[row["rank"], row["aligned_start_ns"]]
        checked(row, [s for s in call.states if s.direction == row["direction"]])


def test_without_the_profiler_the_plugin_has_its_own_calls(
    tmp_path: Path, calls: list[Call]
) -> None:
    few = [c for c in calls if c.seq < 42]
    write_records(tmp_path, few)
    rows = answer(tmp_path, align=False).to_pylist()
    assert len(rows) == 2 * len(few)
    assert {r["joined_by"] for r in rows} == {None}
    assert sum(r["proxy_ns"] for r in rows) == sum(
        parts_by_hand([s for s in c.states if s.direction == d])[p]
        for c in few
        for d, parts in NODE.items()
        for p in parts
    )


def test_without_proxies_it_says_what_to_record(tmp_path: Path, calls: list[Call]) -> None:
    write_profiles(tmp_path, calls)
    with pytest.raises(MissingTable, match="NCCL_PROFILE_EVENT_MASK"):
        answer(tmp_path)


def test_hashes_differ_only_in_their_last_digits() -> None:
    """As float64 they would be one communicator."""
    assert len(HASHES) == 7 and len({float(h) for h in HASHES.values()}) < 7
