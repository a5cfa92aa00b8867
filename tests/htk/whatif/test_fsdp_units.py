"""Where a model's units are in a step, of layers whose place is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.whatif.fsdp_units import (
    Region,
    _passed_on,
    all_next_of,
    all_waited_for,
    backward_layers,
    backward_regions,
    compute_lane,
    find_gradient_products,
    find_layers,
    next_of,
    of_weights,
    position_on,
    waited_for,
    weights_between,
)
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, small_model


def kernels(names: str, *, backward: bool = False) -> list[Act]:
    """A kernel for each letter; A is attention."""
    return [
        Act(f"{n}{'b' if backward else ''}", 10, backward=backward,
            family="attention" if n == "A" else "gemm", op=f"aten::{n}")
        for n in names
    ]  # fmt: skip


def regions(found: list[Region]) -> list[tuple[int, int]]:
    return [(region.first, region.last) for region in found]


LAYER = st.tuples(st.text("bcd", max_size=3), st.text("efg", max_size=3)).map("A".join)


@given(LAYER, st.integers(2, 4), st.text("xyz", min_size=1, max_size=3), st.text("uvw", max_size=3))
def test_layers_are_what_repeats(layer: str, count: int, head: str, tail: str) -> None:
    """Attention stands anywhere in a layer; what is in front of the first is in none."""
    forward = kernels(head) + kernels(layer * count) + kernels(tail)
    back = kernels(tail + layer[::-1] * count + head, backward=True)
    model = small_model(forward + back)
    lane = compute_lane(model, 0)
    each, first = len(layer), len(head)
    expected = [(first + each * k, first + each * (k + 1) - 1) for k in range(count)]
    assert regions(find_layers(model, lane)) == expected
    first = len(forward) + len(tail)
    expected = [(first + each * k, first + each * (k + 1) - 1) for k in range(count)]
    assert regions(backward_layers(model, lane, count)) == expected


def test_layers_that_differ_are_cut_half_way() -> None:
    acts = kernels("xAbbAbbbAcc") + kernels("y", backward=True)
    model = small_model(acts)
    found = regions(find_layers(model, compute_lane(model, 0)))  # attention at 1, 4 and 8
    assert found == [(1, 2), (3, 6), (7, 10)]


def test_one_layer_is_none() -> None:
    model = small_model(kernels("xAb") + kernels("bA", backward=True))
    lane = compute_lane(model, 0)
    assert find_layers(model, lane) == [] and backward_layers(model, lane, 1) == []
    assert backward_layers(model, lane, 2) == []


def test_several_kernels_of_a_layer_s_attention() -> None:
    """Backward attention is two kernels each; a third layer's are not there."""
    model = small_model(kernels("AbAb") + kernels("bAAbAA", backward=True))
    lane = compute_lane(model, 0)
    assert len(backward_layers(model, lane, 2)) == 2
    assert backward_layers(model, lane, 5) == []


def test_ranks_that_share_sequences_attend_to_them_part_by_part() -> None:
    ring = comm("ring", 1, "send_recv", lane="ring", group=2, group_kind="mesh_cp")
    model = small_model([*kernels("xaAAbaAAbc"), *kernels("y", backward=True), ring])
    assert regions(find_layers(model, compute_lane(model, 0))) == [(1, 4), (5, 8)]


def step() -> StepModel:
    """Two ranks; a busier stream on each, copies beside it, and collectives that wait."""
    acts = []
    for rank in (0, 3):
        acts += [
            Act("a", 100, rank=rank),
            Act("b", 100, rank=rank),
            Act("side", 150, "side", rank=rank),
            Act("c", 100, rank=rank, backward=True),
            Act("d", 100, rank=rank, backward=True),
            Act("e", 100, rank=rank, backward=True),
            comm("g", 10, "all_gather", rank=rank, waits=("b",)),
            comm("r", 10, "reduce_scatter", rank=rank, waits=("d",)),
            comm("free", 10, "all_reduce", rank=rank, lane=f"free{rank}"),
        ]
    return small_model(acts)


def named(model: StepModel, rank: int, *names: str) -> list[int]:
    acts = model.graph.activities
    return [
        k
        for name in names
        for k in range(len(acts.start))
        if acts.names[acts.name[k]] == name and acts.rank[k] == rank
    ]


@pytest.mark.parametrize("rank", [0, 3])
def test_the_busiest_stream_of_the_rank(rank: int) -> None:
    model = step()
    lane = compute_lane(model, rank)
    assert lane.tolist() == named(model, rank, *"abcde")
    assert compute_lane(model, 7).tolist() == []
    assert [next_of(lane, a) for a in lane.tolist()] == named(model, rank, *"bcdee")


@pytest.mark.parametrize("rank", [0, 3])
def test_what_a_collective_waits_for(rank: int) -> None:
    model = step()
    lane = compute_lane(model, rank)
    gather, reduce, free = named(model, rank, "g", "r", "free")
    b, d = named(model, rank, "b", "d")
    assert all_waited_for(model, [gather, reduce], lane) == [b, d]
    assert waited_for(model, free, lane) == -1, "nothing is over when it starts"
    assert waited_for(model, named(model, rank, "c")[0], lane) == b, "no event: what is over"


@pytest.mark.parametrize("rank", [0, 3])
def test_backward_is_cut_where_gradients_are_ready(rank: int) -> None:
    model = step()
    lane = compute_lane(model, rank)
    a, c, d, e = named(model, rank, *"acde")
    assert regions(backward_regions(model, lane, [c, e])) == [(c, c), (d, e)]
    assert regions(backward_regions(model, lane, [d, d, -1])) == [(c, d), (e, e), (e, e)]
    assert regions(backward_regions(model, lane, [a])) == [(c, c)], "not before it begins"
    forward = small_model([Act("a", 10), Act("b", 10)])
    assert regions(backward_regions(forward, np.array([0, 1]), [1])) == [(0, 1)]


EMBEDDING = Act("e", 10, op="aten::embedding", dims="[[100, 512], [4, 16]]", family="other")


def product(name: str, dims: str, **more: object) -> Act:
    return Act(name, 10, op="aten::mm", dims=dims, backward=True, **more)  # type: ignore[arg-type]


def test_products_that_make_a_weight_s_gradient() -> None:
    """64 tokens. Of two alike in a row, of a weight as wide, the second makes it."""
    model = small_model(
        [
            EMBEDDING,
            product("w1", "[[512, 64], [64, 2048]]"),
            product("on", "[[64, 2048], [2048, 512]]"),
            product("square on", "[[64, 64], [64, 64]]"),
            product("square", "[[64, 64], [64, 64]]"),
            product("square on 2", "[[64, 64], [64, 64]]"),
            product("square 2", "[[64, 64], [64, 64]]"),
            product("again", "[[128, 64], [64, 32]]", recomputed=True),
            product("no product", "[[128, 64], [64, 32]]", family="elementwise"),
            product("w2", "[[128, 64], [64, 32]]"),
        ]
    )
    lane = compute_lane(model, 0)
    (found,) = find_gradient_products(model, [lane])
    made = [("w1", 512 * 2048), ("square", 64 * 64), ("square 2", 64 * 64), ("w2", 128 * 32)]
    assert found == [(named(model, 0, name)[0], size) for name, size in made]
    chosen = np.flatnonzero(of_weights(model)).tolist()
    assert chosen == sorted(kernel for kernel, _ in found)


def test_without_passes_all_that_sum_over_tokens_do() -> None:
    acts = [EMBEDDING, Act("w", 10, op="aten::mm", dims="[[512, 64], [64, 8]]"), Act("x", 10)]
    assert of_weights(small_model(acts)).tolist() == [False, True, False]


def test_elements_of_a_region_s_weights() -> None:
    acts = [
        Act("a", 10, op="aten::mm", dims="[[64, 512], [512, 2048]]"),
        Act("b", 10, op="aten::addmm", dims="[[8], [64, 2048], [2048, 8]]"),
        Act("bmm", 10, op="aten::bmm", dims="[[64, 512], [512, 2048]]"),
        Act("norm", 10, op="aten::mm", dims="[[64, 512], [512, 2048]]", family="norm"),
        Act("one", 10, op="aten::mm", dims="[[64, 512]]"),
        Act("none", 10, op="aten::mm"),
        Act("c", 10, op="aten::mm", dims="[[64, 3], [3, 5]]"),
    ]
    model = small_model(acts)
    lane = compute_lane(model, 0)
    assert weights_between(model, lane, Region(0, 6)) == 512 * 2048 + 2048 * 8 + 15
    assert weights_between(model, lane, Region(1, 5)) == 2048 * 8
    assert weights_between(model, lane, Region(6, 6)) == 15


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12))
def test_products_in_a_row_count_as_they_do_one_by_one(drawn: list[tuple[int, bool]]) -> None:
    wide = dict(drawn)  # shapes are as wide as there are tokens, or are not
    codes = [code for code, _ in drawn]
    counted: list[int] = []
    before = -1
    for k, code in enumerate(codes):
        second = wide[code] and code == before
        counted = [*counted[:-1], k] if second else [*counted, k]
        before = -1 if second else code
    as_wide = np.array([wide[code] for code in codes], bool)
    assert np.flatnonzero(_passed_on(np.array(codes, np.int64), as_wide)).tolist() == counted


@given(st.permutations(range(8)))
def test_a_place_on_a_stream_is_found_in_any_order(order: list[int]) -> None:
    lane = np.array(order)
    assert [position_on(lane, activity) for activity in order] == list(range(8))


@given(st.permutations(range(8)), st.integers(1, 8))
def test_what_follows_several_is_what_follows_each(numbers: list[int], many: int) -> None:
    lane = np.array(numbers[:many], np.int64)
    asked = np.array([-1, *range(8), lane[0]], np.int64)
    expected = [next_of(lane, a) if a in lane else -1 for a in asked.tolist()]
    assert all_next_of(lane, asked).tolist() == expected
