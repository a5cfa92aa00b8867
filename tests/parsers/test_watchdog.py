"""Lines of PyTorch's watchdog."""

from htk.parsers import nccl_debug
from tests.parsers.log_files import parsed, readings, rows, sample


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
