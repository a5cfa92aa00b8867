"""Why a job hangs: samples, hand-made cases, and random histories with a planted fault."""

import json
import pickle
import random

import pytest

from htk.analyses.comm.hang import hang
from htk.base.core.analysis import coverage_of
from htk.base.errors import MissingTable
from htk.base.schema import TABLES
from tests.analyses.comm.hanging_job import (
    OTHERS,
    Dump,
    Job,
    Step,
    answer,
    dumps,
    entry_of,
    sample,
    verdicts,
)
from tests.thinned import thinned


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hang_missing_rank_v2.10", ("missing_rank", "3")),
        ("size_mismatch_v2.10", ("size_mismatch", "1")),
        ("type_mismatch_v2.10", ("type_mismatch", "0-1")),
        ("p2p_coalesced_v2.10", ("nothing_pending", "0-1")),
        ("ring_wrap_v2.10", ("nothing_pending", "0-1")),
        ("json_v2.10", ("cannot_decide", "1")),
        ("schema_v1.4", ("nothing_pending", "0")),
        ("schema_v2.3", ("nothing_pending", "0")),
        ("truncated", ("cannot_decide", "0,2-3")),
        ("with_nccl_comm_state", ("cannot_decide", "1-3")),
    ],
)
def test_samples(name: str, expected: tuple[str, str]) -> None:
    assert verdicts(sample(name)) == [expected]


def test_without_a_dump_it_says_what_would_make_one() -> None:
    empty = (TABLES[name].empty_table() for name in ("collectives", "comm_groups", *OTHERS))
    with pytest.raises(MissingTable, match="TORCH_FR_BUFFER_SIZE"):
        hang(*empty)


def test_the_verdict_names_call_rank_and_line() -> None:
    facts = coverage_of(sample("hang_missing_rank_v2.10"))
    assert facts["decided"] and facts["dumps"] == "0-3"
    assert facts["verdict"] == (
        "rank 3 never came to all_reduce number 3 of group 0 (default_pg); last call all_reduce "
        "number 2 of group 0 (default_pg), from train_step (/home/user/train.py:120)."
    )


# Random histories: every rank runs a program of collectives, and blocks in each until all members
# of its group have come to it and agree.


def random_job(dice: random.Random) -> tuple[Job, list[int]]:
    """A job without fault, and steps that everybody takes part in."""
    ranks = dice.choice([2, 3, 4, 8, 16, 64])
    width = dice.choice([w for w in (1, 2, 4, 8) if ranks % w == 0 and w < ranks])
    world = tuple(range(ranks))
    blocks = [world[k : k + width] for k in range(0, ranks, width)]
    strided = [world[k::width] for k in range(width)]
    programs: dict[int, list[Step]] = {r: [] for r in world}
    shared = []
    for k in range(dice.randint(4, 12)):
        layout = dice.choice([[world], [world], blocks, strided])
        kind = dice.choice(["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
        size = dice.choice([16, 64, 4096])
        for group in layout:
            for rank in group:
                programs[rank].append(Step(group, kind, size))
        if layout == [world]:
            shared.append(k)
    for rank in world:
        programs[rank].append(Step(world))
    shared.append(len(programs[0]) - 1)
    return Job(programs, timing=dice.random() < 0.5, ahead=dice.randint(0, 2)), shared


@pytest.mark.parametrize("seed", thinned(range(12), 3))
def test_a_rank_that_never_comes(seed: int) -> None:
    dice = random.Random(seed)
    job, _ = random_job(dice)
    culprit = dice.choice(list(job.programs))
    reached = dice.randrange(1, len(job.programs[culprit]))
    step = job.programs[culprit][reached]
    del job.programs[culprit][reached:]
    found = answer(dumps(job))
    if len(step.group) == 1:  # it waits for nobody there; it is missed at a later call
        assert all(v == ("missing_rank", str(culprit)) for v in verdicts(found))
        return
    assert verdicts(found) == [("missing_rank", str(culprit))]
    assert found["group"][0].as_py() == step.name
    assert coverage_of(found)["decided"]


@pytest.mark.parametrize("seed", thinned(range(12), 3))
@pytest.mark.parametrize("what", ["size", "type", "dtype"])
def test_a_rank_that_makes_another_call(seed: int, what: str) -> None:
    dice = random.Random(1000 + seed)
    job, shared = random_job(dice)
    culprit, at = dice.choice(list(job.programs)), dice.choice(shared)
    step = job.programs[culprit][at]
    other = {
        "size": Step(step.group, step.kind, 7777),
        "type": Step(step.group, "all_to_all", step.size),
        "dtype": Step(step.group, step.kind, step.size, "BFloat16"),
    }
    job.programs[culprit][at] = other[what]
    job.ahead = 0
    found = answer(dumps(job))
    ((finding, ranks),) = verdicts(found)
    assert finding == f"{what}_mismatch"
    if len(step.group) == 2:  # one against one
        assert ranks == "0-1" and not coverage_of(found)["decided"]
    else:
        assert ranks == str(culprit) and coverage_of(found)["decided"]
    assert found["seq"][0].as_py() == sum(
        s.group == step.group for s in job.programs[culprit][: at + 1]
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_collective_that_does_not_end(seed: int) -> None:
    dice = random.Random(2000 + seed)
    job, shared = random_job(dice)
    job.frozen = {dice.choice(shared)}
    found = answer(dumps(job))
    assert verdicts(found) == [("not_completed", f"0-{len(job.programs) - 1}")]


@pytest.mark.parametrize("seed", thinned(range(8), 3))
def test_a_missing_rank_that_left_no_dump(seed: int) -> None:
    dice = random.Random(3000 + seed)
    job, shared = random_job(dice)
    culprit = dice.choice(list(job.programs))
    del job.programs[culprit][dice.choice(shared) :]
    found = answer(dumps(job, without=(culprit,)))
    assert verdicts(found) == [("cannot_decide", str(culprit))]
    assert not coverage_of(found)["decided"]
    assert coverage_of(found)["dumps_missing"] == str(culprit)


@pytest.mark.parametrize("seed", thinned(range(8), 3))
def test_two_groups_in_opposite_order(seed: int) -> None:
    dice = random.Random(4000 + seed)
    size = dice.choice([4, 8, 16])
    world = tuple(range(size))
    other = tuple(sorted({0, size - 1, *dice.sample(world, size // 2)}))
    start = [Step(world)] * dice.randint(1, 4)
    programs = {r: [*start, Step(world), *([Step(other)] if r in other else [])] for r in world}
    programs[size - 1] = [*start, Step(other), Step(world)]
    found = answer(dumps(Job(programs, ahead=dice.randint(0, 1), timing=False)))
    ((finding, ranks),) = verdicts(found)
    assert finding == "cycle"
    assert str(size - 1) in ranks.replace("-", ",").split(",")


def test_swapped_calls_are_called_so() -> None:
    world = (0, 1, 2)
    a, b = Step(world, "all_reduce", 16), Step(world, "all_gather", 64)
    programs = {r: [a, b] for r in world} | {1: [b, a]}
    found = answer(dumps(Job(programs, ahead=1)))
    assert verdicts(found) == [("order_mismatch", "1")]
    assert "rank 1 swaps two calls" in found["text"][0].as_py()


def test_a_call_that_contradicts_itself_needs_no_majority() -> None:
    job = Job({r: [Step((0, 1), "all_gather", 8)] for r in (0, 1)}, frozen={0})
    broken = job.run()
    broken[1]["entries"][0]["output_sizes"] = [[9]]
    found = answer({r: pickle.dumps(d, 2) for r, d in broken.items()})
    assert verdicts(found) == [("size_mismatch", "1")]


def test_a_message_that_nobody_receives() -> None:
    def send(record: int, state: str, name: str) -> Dump:
        step = Step((0, 1))
        return entry_of(record, step, 0, state) | {
            "profiling_name": name,
            "is_p2p": True,
            "p2p_seq_id": record + 1,
        }

    groups = {"pg0-1x2": {"name": "pg0-1x2", "desc": "", "ranks": "[0, 1]"}}
    one = [send(0, "completed", "nccl:send 0->1"), send(1, "started", "nccl:send 0->1")]
    two = [send(0, "completed", "nccl:recv 1<-0")]
    found = answer(
        {
            rank: json.dumps({"version": "2.10", "pg_config": groups, "entries": entries}).encode()
            for rank, entries in enumerate((one, two))
        }
    )
    assert verdicts(found) == [("missing_rank", "1")]
    assert "message 2 from rank 0 to 1" in found["text"][0].as_py()
