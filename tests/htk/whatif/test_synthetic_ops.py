"""More activities in a small step."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.errors import UsageError
from htk.quantities.graph.replay import replay_graph
from htk.whatif.synthetic_ops import (
    COMM,
    COMPUTE,
    Work,
    _merge_order,
    insert_works,
    link_nodes,
    link_to_step_before,
    part_collectives,
)
from tests.htk.whatif.small_step_model import Act, comm, period, small_model

# compute: a 100, b 50, c 30 in a row; a gather of 20 beside, which c waits for.
STEP = (
    Act("a", 100),
    Act("b", 50),
    Act("c", 30, waits=("g",)),
    comm("g", 20, "all_gather"),
)


def test_the_step_is_as_drawn() -> None:
    assert period(small_model(STEP)) == 180


def test_what_fits_beside_the_compute_costs_nothing() -> None:
    model = small_model(STEP)
    found = insert_works(model, [Work(like=3, length=140.0, after=(3,), before=(2,))])
    assert period(found) == 190  # 20 + 140 on that side, then c

    alone = insert_works(model, [Work(like=3, length=130.0, after=(3,), before=(2,))])
    assert period(alone) == 180


def test_what_stands_between_two_kernels_adds_its_length() -> None:
    model = small_model(STEP)
    found = insert_works(model, [Work(0, 40.0, (0,), (1,), kind=COMPUTE)])
    assert period(found) == 220
    assert (
        replay_graph(found.graph).period_ns == 180
    )  # its own weights are those of the untouched step


def test_ranks_wait_for_each_other_in_a_new_collective() -> None:
    slow = [Act("a", 100, rank=1), Act("b", 50, rank=1)]
    fast = [Act("a", 60), Act("b", 50)]
    model = small_model([*fast, *slow])
    works = [Work(k, 10.0, (k,), (k + 1,), joined=(0,)) for k in (0, 2)]
    assert period(model) == 150
    assert period(insert_works(model, works)) == 160  # 100, 10, 50 on both


def test_new_ones_may_follow_each_other() -> None:
    model = small_model(STEP)
    n = len(STEP)
    works = [Work(3, 70.0, (0,), (n + 1,)), Work(3, 70.0, (0,), (2,))]
    assert period(insert_works(model, works)) == 100 + 70 + 70 + 30


def test_a_circle_is_refused() -> None:
    with pytest.raises(UsageError, match="circle"):
        insert_works(small_model(STEP), [Work(0, 1.0, after=(1,), before=(0,))])


def test_edges_lead_upwards() -> None:
    graph = insert_works(small_model(STEP), [Work(0, 40.0, (0,), (1,))]).graph
    assert (graph.src < graph.dst).all()
    assert (np.diff(graph.dst) >= 0).all()


def test_facts_of_new_ones_are_given_or_those_of_their_like() -> None:
    """A kernel like b, and three transfers: alone, of all ranks, and of nothing known."""
    shapes = "[[8, 4], [4, 2]]"
    acts = [
        Act("a", 100), Act("b", 50, op="aten::mm", dims=shapes, blocks=3.0, persistent=True),
        comm("g", 20, "all_gather"),
    ]  # fmt: skip
    model = small_model(acts)
    works = [
        Work(1, 5.0, (0,), (1,), COMPUTE),
        Work(1, 6.0, (0,), (1,), COMPUTE, op="aten::copy"),
        Work(2, 7.0, (0,), (1,), COMM, "all_reduce", 16, 32, 4, 2),
        Work(2, 8.0, (0,), (1,), COMM, "broadcast", joined=(3,)),
    ]
    more = insert_works(model, works)
    facts, acts_ = more.facts, more.graph.activities
    assert facts.family[3:] == ["gemm", "gemm", "communication", "communication"]
    assert facts.op[3:] == ["aten::mm", "aten::copy", None, None]
    assert facts.dims[3:] == [shapes, shapes, None, None]
    assert facts.collective[3:] == [None, None, "all_reduce", "broadcast"]
    assert facts.in_bytes[3:].tolist() == [-1, -1, 16, -1]
    assert facts.out_bytes[3:].tolist() == [-1, -1, 32, -1]
    assert facts.group_size[3:].tolist() == [-1, -1, 4, -1]
    assert facts.per_node[3:].tolist() == [0, 0, 2, 0]
    assert facts.single[3:].tolist() == [False, False, True, False]
    assert facts.persistent[3:].tolist() == [True, True, False, False]
    assert facts.blocks[3:5].tolist() == [3, 3]
    assert more.is_compute.tolist() == [True, True, False, True, True, False, False]
    assert more.is_comm.tolist() == [False, False, True, False, False, True, True]
    assert more.lengths().tolist() == [100, 50, 20, 5, 6, 7, 8]
    assert [acts_.names[n] for n in acts_.name[3:]] == ["b", "b", "g", "g"]
    assert acts_.call[3:].tolist() == [-1] * 4
    assert len(set(acts_.lane[3:])) == 1 and not set(acts_.lane[3:]) & set(acts_.lane[:3])


def test_new_ones_stand_where_what_they_wait_for_is_over() -> None:
    """The recorded step: a to 100, b to 150, c to 180; g to 20. Two new ones hang on new ones."""
    model = small_model(STEP)
    n = len(STEP)
    works = [
        Work(3, 70.0, (3,), ()),
        Work(3, 70.0, (n, 0), ()),
        Work(3, 70.0, (n + 1, 1), (), joined=(0,)),
        Work(3, -70.0, (), ()),
    ]
    graph = insert_works(model, works).graph
    assert graph.time[graph.start[n:]].tolist() == [20, 100, 150, 0]
    assert graph.time[graph.end[n:]].tolist() == [20, 100, 150, 0]
    assert graph.activities.start[n:].tolist() == [20, 100, 150, 0]
    assert graph.time[graph.start[:n]].tolist() == model.graph.time[model.graph.start].tolist()
    assert insert_works(model, works).lengths()[n:].tolist() == [70, 70, 70, 0]


@pytest.mark.parametrize("number", [0, 2])
def test_a_new_one_starts_no_sooner_than_its_call_and_its_lag(number: int) -> None:
    """The host comes to the third call 500 late; from a call to a new one it takes 40."""
    model = small_model(STEP)
    graph = model.graph
    third = graph.edges("host_gap") & (graph.dst == graph.call_start[2])
    late = replace(model, weight=np.where(third, 500, model.weight))
    assert period(late) == 550, "c waits for the gather, which is launched behind it"
    new = insert_works(late, [Work(3, 700.0, (), (2,), call=number, lag=40.4)])
    assert period(new) == (500 if number == 2 else 0) + 40 + 700 + 30, "then c"


def test_a_dependency_is_none_of_the_recorded_step() -> None:
    model = small_model(STEP)
    graph = model.graph
    with pytest.raises(UsageError, match="circle"):
        link_nodes(model, graph.end[[2]], graph.start[[3]])  # c waits for the gather already
    behind = link_nodes(model, graph.end[[1]], graph.start[[3]])
    assert period(behind) == 100 + 50 + 20 + 30
    assert replay_graph(behind.graph).period_ns == 180
    apart = link_nodes(model, graph.end[[1]], graph.start[[3]], weights=np.array([7]))
    assert period(apart) == 100 + 50 + 7 + 20 + 30


def test_what_follows_waits_for_the_step_before() -> None:
    """g of the next step waits for c, as all does here: a step still takes its 180."""
    both = link_to_step_before(small_model(STEP), np.array([2]), np.array([3]))
    assert period(both) == replay_graph(both.graph).period_ns == 180


def test_parts_of_a_collective_that_wait_for_nobody() -> None:
    """Rank 0 is there after 60, rank 1 after 100; 10 of transfer, then 50 on both."""
    acts = [
        act for rank, ready in ((0, 60), (1, 100)) for act in (
            Act("a", ready, rank=rank),
            comm("r", 10, "all_reduce", rank=rank, waits=("a",), joined="r"),
            Act("b", 50, rank=rank, waits=("r",)),
        )
    ]  # fmt: skip
    model = small_model(acts)
    assert period(model) == 160
    chosen = model.is_comm & (model.graph.activities.rank == 0)
    alone = part_collectives(model, chosen)
    ends = replay_graph(alone.graph, alone.weight, alone.wrap_weight).time[alone.graph.end]
    names = [alone.graph.activities.names[n] for n in alone.graph.activities.name]
    by_name = dict(zip(zip(names, alone.graph.activities.rank.tolist(), strict=True),
                       ends.tolist(), strict=True))  # fmt: skip
    assert by_name["r", 0] == 70 and by_name["b", 0] == 120
    assert by_name["r", 1] == 110 and by_name["b", 1] == 160
    assert alone.lengths().tolist() == model.lengths().tolist()


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_rows_that_stand_in_order_are_merged_with_the_rest(rows: list[tuple[int, bool]]) -> None:
    keys = np.array([key for key, _ in rows], np.int64)
    high, stays = -1, []
    for key, wanted in rows:  # of those wanted, the ones that rise
        stays.append(wanted and key >= high)
        high = key if stays[-1] else high
    assert (
        _merge_order(keys, np.array(stays, bool)).tolist()
        == np.argsort(keys, kind="stable").tolist()
    )


def test_new_ones_have_the_facts_of_their_like_or_their_own() -> None:
    model = small_model([Act("a", 100, op="aten::mm"), Act("b", 50, op="aten::add")])
    works = [
        Work(1, 5.0, (0,), (1,), kind=COMPUTE),
        Work(0, 5.0, (0,), (1,), kind=COMPUTE, op="aten::copy_"),
        Work(0, 5.0, (0,), (1,), op="no matter", collective="all_reduce", in_bytes=8),
    ]
    facts, two = insert_works(model, works).facts, len(model.facts.op)
    assert facts.op[:] == [*model.facts.op, "aten::add", "aten::copy_", None]
    assert facts.collective[two:] == [None, None, "all_reduce"]
    assert facts.family[two + 1] == model.facts.family[0]
    assert facts.family[two + 2] == "communication"
    assert facts.in_bytes[two:].tolist() == [-1, -1, 8]
