"""Lines of PyTorch's watchdog."""

from htk.parsers import nccl_debug
from tests.parsers.log_files import parsed, readings, rows, sample, values


def test_the_call_that_timed_out() -> None:
    log = sample("watchdog/rank_missing.log")
    calls = rows(log, "collectives")
    assert [(c["rank"], c["group"], c["group_desc"], c["seq"], c["type"]) for c in calls] == [
        (rank, "0", "default_pg", 78, "all_reduce") for rank in (0, 1, 3)
    ]
    first = calls[0]
    assert first["in_elements"] == first["out_elements"] == 1 << 20
    assert first["timeout_ns"] == 600 * 10**9
    assert first["duration_ns"] is None, "it did not end: what it ran is no communication time"
    assert first["state"] == "timed_out" and first["library"] == "nccl"
    assert first["frames"].splitlines()[1] == "step (/app/train.py:41)"


def test_the_counters_of_a_rank_that_only_hears_of_it() -> None:
    states = rows(sample("watchdog/rank_missing.log"), "comm_groups")
    counts = {s["rank"]: (s["last_enqueued"], s["last_completed"]) for s in states}
    assert counts == {0: (80, 77), 1: (80, 77), 2: (77, 77), 3: (78, 77)}


def test_ranks_of_a_subgroup_are_those_before_the_line() -> None:
    calls = rows(sample("watchdog/ray_subgroup_size.log"), "collectives")
    assert [(c["rank"], c["comm_rank"], c["group"]) for c in calls] == [
        (4, 0, "9"), (5, 1, "9"), (6, 2, "9"),
    ]  # fmt: skip
    assert {c["type"] for c in calls} == {"all_gather"}


def test_words_of_torch_1_13() -> None:
    (call,) = rows(sample("watchdog/torch_1.13.log"), "collectives")
    assert (call["rank"], call["inferred_columns"], call["in_shapes"]) == (1, "rank", "[4096,512]")
    assert readings(sample("watchdog/torch_1.13.log"))["watchdog", "skipped"] == 1


def test_counters_that_contradict_each_other_are_not_used() -> None:
    line = (
        "[rank1]:[E1 00:00:00.1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 1] "
        "failure detected by watchdog at work sequence id: 524 PG status: last enqueued work: 524, "
        "last completed work: 792\n"
    )
    log = parsed(nccl_debug, line)
    (state,) = rows(log, "comm_groups")
    assert (state["last_enqueued"], state["last_completed"]) == (None, None)
    assert [i["kind"] for i in rows(log, "parse_issues")] == ["contradictory_counters"]


def stamp(second: str) -> str:
    """A time of c10d's with its year: 14 November 2023, 22:13:20 UTC is 1,700,000,000 s."""
    return f"E20231114 22:13:{second}"


def test_every_field_of_a_call_and_of_its_group() -> None:
    """Rank 9 of the job is rank 1 of group 7: the call began 1.5 s before the watchdog saw it."""
    line = f"[rank9]:[{stamp('20.250000')} ProcessGroupNCCL.cpp:1] "
    log = parsed(
        nccl_debug,
        f"{line}[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
        "OpType=SEND, NumelIn=12, NumelOut=34, Timeout(ms)=2000) ran for 1500 milliseconds\n"
        f"{line}[PG ID 3 PG GUID 7(mesh_tp) Rank 1] Timeout at NCCL work: 5, last enqueued NCCL "
        "work: 8, last started NCCL work: 5, last completed NCCL work: 4.\n",
    )
    (call,) = rows(log)
    second = 1_700_000_000 * 10**9 + 250 * 10**6
    wanted = {
        "rank": 9, "comm_rank": 1, "seq": 5, "seq_kind": "p2p", "type": "send", "raw_name": "SEND",
        "library": "nccl", "in_elements": 12, "in_shapes": None, "out_elements": 34,
        "timeout_ns": 2 * 10**9, "end_ns": second, "enqueue_ns": second - 1_500 * 10**6,
        "group": "7", "group_desc": "mesh_tp", "state": "timed_out", "timing": "watchdog",
        "duration_ns": None, "frames": None, "inferred_columns": None,
    }  # fmt: skip
    assert {name: call[name] for name in wanted} == wanted
    (state,) = rows(log, "comm_groups")
    counted = ("rank", "group", "group_desc", "last_enqueued", "last_started", "last_completed")
    assert [state[name] for name in counted] == [9, "7", "mesh_tp", 8, 5, 4]


def test_the_group_names_the_call_of_its_own_rank_and_number() -> None:
    """Two ranks of the text's rank 0, two calls of each: the last line is of rank 4's second."""

    def call(rank: int, seq: int) -> str:
        return (
            f"[rank{rank}]:[E ProcessGroupNCCL.cpp:1] [Rank 0] Watchdog caught collective operation"
            f" timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn={seq}, NumelOut={seq}, "
            "Timeout(ms)=1000) ran for 1001 milliseconds before timing out.\n"
        )

    named = (
        "[rank4]:[E ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 6(ep) Rank 0] failure detected by "
        "watchdog at work sequence id: 3 PG status: last enqueued work: 3, last completed work: 2\n"
    )
    log = parsed(nccl_debug, call(4, 2) + call(4, 3) + call(8, 2) + call(8, 3) + named)
    assert [(c["rank"], c["seq"], c["group"]) for c in rows(log)] == [
        (4, 2, None), (4, 3, "6"), (8, 2, None), (8, 3, None),
    ]  # fmt: skip
    assert {c["seq_kind"] for c in rows(log)} == {"collective"}


def test_without_ranks_before_lines_only_the_default_group_tells_them() -> None:
    def lines(group: str, rank: int) -> str:
        return (
            f"[E ProcessGroupNCCL.cpp:1] {group} Rank {rank}] Timeout at NCCL work: 5, "
            "last enqueued NCCL work: 5, last completed NCCL work: 4.\n"
        )

    log = parsed(nccl_debug, lines("[PG ID 0 PG GUID 0(default_pg)", 2) + lines("[PG 0", 3))
    assert [s["rank"] for s in rows(log, "comm_groups")] == [2, 3]
    log = parsed(nccl_debug, lines("[PG ID 1 PG GUID 0(dp)", 2) + lines("[PG 4", 3))
    assert [(s["rank"], s["group"]) for s in rows(log, "comm_groups")] == [(None, "0"), (None, "4")]


def test_a_stack_belongs_to_the_last_call_of_its_rank_and_ends_at_its_last_frame() -> None:
    def call(rank: int, seq: int) -> str:
        return (
            f"[rank{rank}]:[E ProcessGroupNCCL.cpp:1] [Rank {rank}] Watchdog caught collective "
            f"operation timeout: WorkNCCL(SeqNum={seq}, OpType=BROADCAST, Timeout(ms)=1000)\n"
        )

    stack = "[rank1]:[E ProcessGroupNCCL.cpp:1] Stack trace of the failed collective:\n"
    frames = "#0 inner from /a b/x.py:7\n#1 outer from y.py:8\nsomething else\n#2 far from z.py:9\n"
    log = parsed(nccl_debug, call(1, 3) + call(1, 4) + call(2, 4) + stack + frames)
    assert [(c["rank"], c["seq"], c["frames"]) for c in rows(log)] == [
        (1, 3, None), (1, 4, "inner (/a b/x.py:7)\nouter (y.py:8)"), (2, 4, None),
    ]  # fmt: skip
    assert {values(c, "in_elements", "out_elements", "enqueue_ns") for c in rows(log)} == {
        (None, None, None)
    }


def test_an_exception_repeats_a_call_and_may_say_more_of_another() -> None:
    """The text again without the rank before it is the same call; other elements are another."""

    def text(rank: int, elements: int) -> str:
        return (
            f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, "
            f"OpType=REDUCE, NumelIn={elements}, NumelOut={elements}, Timeout(ms)=10)\n"
        )

    before = "[rank5]:[E ProcessGroupNCCL.cpp:1] "
    log = parsed(nccl_debug, before + text(1, 64) + "  what():  " + text(1, 64))
    assert [(c["rank"], c["comm_rank"], c["in_elements"]) for c in rows(log)] == [(5, 1, 64)]
    log = parsed(nccl_debug, before + text(1, 64) + "  what():  " + text(1, 65))
    assert [(c["rank"], c["comm_rank"], c["in_elements"]) for c in rows(log)] == [
        (5, 1, 64), (None, 1, 65),
    ]  # fmt: skip


def test_a_stuck_watchdog_is_a_note_of_its_rank() -> None:
    stuck = "ProcessGroupNCCL's watchdog got stuck for 480seconds without making progress"
    log = parsed(
        nccl_debug,
        f"first\n[rank3]:[{stamp('21.000000')} ProcessGroupNCCL.cpp:1] [PG ID 2 Rank 1] {stuck}\n"
        f"[E ProcessGroupNCCL.cpp:1] [PG ID 2 Rank 6] {stuck}\n",
    )
    first, second = rows(log, "comm_notes")
    assert values(first, "rank", "level", "time_ns", "offset") == (
        3, "ERROR", 1_700_000_001 * 10**9, 6,
    )  # fmt: skip
    assert first["text"].endswith(stuck) and second["rank"] == 6
