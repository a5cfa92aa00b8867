"""What FSDP does for its units, in the order in which a rank's CPU issues it.

A step of an embedding and two layers of 8 MB, forward and backward; 2 MB are in no layer. Four
ranks share, in two groups; times are unlike, so that none is taken for another.
"""

from dataclasses import replace

import pytest

from htk.whatif.data_groups import Position
from htk.whatif.ddp_to_fsdp import OUT, TOGETHER, _build_backward, _build_forward, _Plan, _Rank
from htk.whatif.edits import sharding
from htk.whatif.fsdp_units import backward_layers, compute_lane, find_layers
from htk.whatif.network_tiers import read_network
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import Work
from tests.htk.whatif.edits.attention_step import STEP, K
from tests.htk.whatif.named_jobs import started
from tests.htk.whatif.small_step_model import Act, small_model

MODEL = small_model([*STEP[:-2], Act("late", K, backward=True), *STEP[-2:]])
LANE = compute_lane(MODEL, 0)
NAMES = [MODEL.graph.activities.names[n] for n in MODEL.graph.activities.name]
MANY = len(NAMES)
LIKE = NAMES.index("r")
PLAN = _Plan(
    "full_shard", 4, 2, read_network(MODEL), unit=8e6, root=2e6, copied=0.01, shortest=1000.0,
    hook=500.0, call=700.0, operator=110.0, launch=30.0,
)  # fmt: skip
HOOK_AND_GATHER = 500 + 700 + 2 * 110


def builder(plan: _Plan = PLAN) -> _Rank:
    return _Rank(MODEL, plan, LANE, MANY, LIKE, Position(0, 0))


def calls(rank: _Rank) -> list[tuple[str, float]]:
    """What the CPU does more before it launches an activity, by that one's name."""
    launched = {int(c): NAMES[k] for k, c in enumerate(MODEL.graph.activities.call)}
    return [(launched[call], ns) for call, ns in rank.calls]


def named(rank: _Rank) -> list[str]:
    """Names of the new activities: g gathers, o copies out, t puts together, r and s reduce."""
    letters = {"all_gather": "g", "reduce_scatter": "r", "all_reduce": "s", OUT: "o", TOGETHER: "t"}
    count = dict.fromkeys(letters.values(), 0)
    names = []
    for work in rank.works:
        letter = letters[work.collective or work.op or ""]
        names.append(f"{letter}{count[letter]}")
        count[letter] += 1
    return names


def beside(rank: _Rank) -> dict[str, tuple[set[str], set[str]]]:
    """What each new activity waits for, and what waits for it."""
    every = [*NAMES, *named(rank)]

    def of(numbers: tuple[int, ...]) -> set[str]:
        return {every[n] for n in numbers}

    return {
        name: (of(w.after), of(w.before)) for name, w in zip(named(rank), rank.works, strict=True)
    }


def by_name(rank: _Rank) -> dict[str, Work]:
    return dict(zip(named(rank), rank.works, strict=True))


def test_times_of_a_plan() -> None:
    net = PLAN.network
    assert PLAN.gather_ns == 700 + 2 * 110
    assert PLAN.reduce_ns == 500 + 110 + 2 * 700, "two reductions, one of them between replicas"
    assert replace(PLAN, replicas=1).reduce_ns == 500 + 110 + 700
    assert PLAN.copy(8e6) == 1000 + 80_000
    assert PLAN.length(8e6) == pytest.approx(net.latency(4, 4) + 8e6 * net.shared(4))
    assert PLAN.summed(8e6) == pytest.approx(net.latency(8, 8) + 8e6 * net.summed(8, 4))
    assert PLAN.summed(8e6) > net.latency(8, 8)


def test_forward_gathers_the_root_and_each_layer_ahead_of_it() -> None:
    rank = builder()
    _build_forward(rank, LANE, find_layers(MODEL, LANE))
    firsts = [NAMES[region.first] for region in find_layers(MODEL, LANE)]
    assert calls(rank) == [(name, HOOK_AND_GATHER) for name in ("e", *firsts)]
    assert named(rank) == ["g0", "o0", "g1", "o1", "g2", "o2"]
    waits = beside(rank)
    assert waits["g0"] == (set(), set()) and waits["g1"] == ({"g0"}, set())
    assert waits["g2"] == ({"g1", "o0"}, set()), "a buffer is free once it is copied out"
    assert waits["o0"] == ({"g0"}, {"e"})
    for k, region in enumerate(find_layers(MODEL, LANE), 1):
        front = NAMES[LANE[LANE.tolist().index(region.first) - 1]]
        assert waits[f"o{k}"] == ({f"g{k}", front}, {firsts[k - 1]})
    works = by_name(rank)
    assert [works[f"g{k}"].out_bytes for k in range(3)] == [2_000_000, 8_000_000, 8_000_000]
    assert [works[f"g{k}"].in_bytes for k in range(3)] == [500_000, 2_000_000, 2_000_000]
    assert [works[f"o{k}"].length for k in range(3)] == [PLAN.copy(s) for s in (2e6, 8e6, 8e6)]
    assert {works[f"g{k}"].lag for k in range(3)} == {30 - 110}, "ahead of the copy's launch"
    assert {(w.group_size, w.per_node) for w in rank.works if w.collective} == {(4, 4)}
    assert works["g1"].length == PLAN.length(8e6)


def test_the_first_layer_may_begin_the_step() -> None:
    """Both hooks then come before one launch: the root's gather is issued a hook earlier."""
    rank = builder()
    regions = find_layers(MODEL, LANE)
    _build_forward(rank, LANE, [replace(regions[0], first=int(LANE[0])), regions[1]])
    works = by_name(rank)
    assert [works[f"g{k}"].lag for k in range(3)] == [
        30 - 110 - HOOK_AND_GATHER, 30 - 110, 30 - 110
    ]  # fmt: skip


def test_backward_gathers_again_and_reduces_layer_by_layer() -> None:
    regions = backward_layers(MODEL, LANE, 2)
    rank = builder()
    _build_backward(rank, LANE, regions)
    firsts = [NAMES[region.first] for region in regions]
    behind = [NAMES[LANE[LANE.tolist().index(region.last) + 1]] for region in regions]
    rest, reduced = behind[-1], PLAN.reduce_ns
    assert calls(rank) == [
        ("c1", 700 + 110), (firsts[0], HOOK_AND_GATHER), (behind[0], reduced),
        (firsts[1], 500 + 110), (behind[1], reduced), (rest, reduced),
    ]  # fmt: skip
    assert named(rank) == ["g0", "o0", "g1", "t0", "r0", "s0", "o1", "t1", "r1", "s1", "t2", "r2",
                           "s2"]  # fmt: skip
    waits = beside(rank)
    lasts = [NAMES[region.last] for region in regions]
    assert waits["g0"] == (set(), set()) and waits["g1"] == ({"g0"}, set())
    assert waits["t0"] == ({lasts[0]}, {behind[0]})
    assert waits["t1"][0] == {lasts[1], "r0"}, "compute waits for the reduction before"
    assert waits["t2"][0] == {lasts[1], "r1"}
    assert waits["r0"] == ({"t0", "g1"}, {rest}) and waits["r1"] == ({"t1", "r0"}, {rest})
    assert waits["s0"] == ({"r0"}, {rest}) and waits["s1"] == ({"r1", "s0"}, {rest})
    assert "t0" in waits["o1"][0] and "g1" in waits["o1"][0]
    works = by_name(rank)
    assert [works[f"r{k}"].in_bytes for k in range(3)] == [8_000_000, 8_000_000, 2_000_000]
    assert [works[f"r{k}"].out_bytes for k in range(3)] == [2_000_000, 2_000_000, 500_000]
    assert [works[f"s{k}"].in_bytes for k in range(3)] == [2_000_000, 2_000_000, 500_000]
    assert [works[f"s{k}"].out_bytes for k in range(3)] == [2_000_000, 2_000_000, 500_000]
    assert {works[f"s{k}"].group_size for k in range(3)} == {2}
    assert [works[f"s{k}"].length for k in range(3)] == [PLAN.summed(s) for s in (8e6, 8e6, 2e6)]
    assert [works[f"t{k}"].length for k in range(3)] == [PLAN.copy(s) for s in (8e6, 8e6, 2e6)]
    assert [works[f"r{k}"].lag for k in range(3)] == [30 - HOOK_AND_GATHER, 30, 30]
    assert [works[f"g{k}"].lag for k in range(2)] == [30, 30]


def test_what_stays_whole_is_not_gathered_again() -> None:
    rank = builder(replace(PLAN, name="shard_grad_op", replicas=1))
    regions = backward_layers(MODEL, LANE, 2)
    _build_backward(rank, LANE, regions)
    assert named(rank) == ["t0", "r0", "t1", "r1", "t2", "r2"]
    firsts = [NAMES[region.first] for region in regions]
    hooks = [ns for name, ns in calls(rank) if name in firsts]
    assert 500 in hooks, "the hook alone"
    assert [by_name(rank)[f"r{k}"].lag for k in range(3)] == [30 - 500, 30, 30]


@pytest.mark.parametrize(("job", "twin"), [("plain", "sharded"), ("tf32", "tf32, sharded")])
def test_units_have_the_bytes_that_fsdp_gathers(job: str, twin: str) -> None:
    edited = sharding.apply(started(job).model, "full_shard")
    assert gathered(edited) == pytest.approx(gathered(started(twin).model), rel=0.01)


def gathered(model: StepModel) -> list[int]:
    first = model.is_collective("all_gather") & (model.graph.activities.rank == 0)
    return sorted(model.facts.out_bytes[first].tolist())
