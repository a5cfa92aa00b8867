"""What edits of parallelism share: sizes by shapes, work that is split, collectives of each layer.

The step of two attention layers: 2 sequences of 512 tokens, 8 heads of 64.
"""

from dataclasses import replace

import numpy as np
import pytest

from htk.base.errors import UsageError
from htk.physics.network import LATENCY_NS
from htk.whatif.fsdp_units import Region
from htk.whatif.network_tiers import read_network
from htk.whatif.parallel import (
    Sizes,
    _find_place,
    activation_ns,
    each_layer,
    fewer_replicas,
    inner_split,
    mark_pointwise,
    read_sizes,
    shrink_collectives,
    split_work,
    tensor_degree,
    tensor_reduces,
)
from tests.htk.whatif.edits.attention_step import STEP, K
from tests.htk.whatif.small_step_model import Act, comm, length, small_model

MIB = 1 << 20


def names(model, chosen: np.ndarray) -> list[str]:
    acts = model.graph.activities
    return [acts.names[code] for code in acts.name[chosen].tolist()]


def test_sizes_are_those_of_queries_and_keys() -> None:
    assert read_sizes(small_model(STEP), "tp") == Sizes(tokens=1024, hidden=512, kv_share=1.0)
    keys = "[[2, 8, 512, 64], [2, 2, 512, 64], [2, 2, 512, 64]]"
    grouped = [replace(act, dims=keys) if act.family == "attention" else act for act in STEP]
    assert read_sizes(small_model(grouped), "tp") == Sizes(1024, 512, 0.25)
    assert read_sizes(replace(small_model(STEP), activation_scale=0.5), "tp").tokens == 512


def test_attention_of_one_shape_tells_no_sizes() -> None:
    dims = "[[2, 8, 512, 64]]"
    packed = [replace(act, dims=dims) if act.family == "attention" else act for act in STEP]
    with pytest.raises(UsageError, match="tokens and hidden width are not known"):
        read_sizes(small_model(packed), "tp")


def shared_by_two() -> list[Act]:
    """Return the step of one of two ranks that share each layer: half of the heads are its own."""
    return [
        *STEP,
        Act("residual", 200 * K, family="elementwise", dims="[[1024, 1024], []]"),
        comm("t", K, "all_reduce", lane="tp", waits=("a0",), in_bytes=MIB, group=2, per_node=2),
    ]


def test_sizes_are_of_the_whole_model_where_ranks_share_its_layers() -> None:
    """Residuals are as wide as the model; what is half as wide is split already."""
    model = small_model(shared_by_two())
    of = read_sizes(model, "tp")
    assert of == Sizes(tokens=1024, hidden=1024, kv_share=1.0)
    assert names(model, mark_pointwise(model, of)) == ["n0", "residual"]


def test_without_shapes_sizes_are_not_guessed() -> None:
    bare = [replace(act, dims=None) for act in STEP]
    with pytest.raises(UsageError, match="tp: tokens and hidden width are not known"):
        read_sizes(small_model(bare), "tp")


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("aten::_scaled_dot_product_flash_attention", "[2, 8, 512, 64]"),
        ("aten::_flash_attention_forward", "[2, 512, 8, 64]"),  # heads come after the length
    ],
)
def test_without_an_embedding_attention_tells_the_tokens(op: str, shape: str) -> None:
    dims = f"[{shape}, {shape}, {shape}]"
    step = [
        replace(act, op=op, dims=dims) if act.name in ("a0", "a1") else replace(act, dims=None)
        for act in STEP
    ]
    assert read_sizes(small_model(step), "tp") == Sizes(1024, 512, 1.0)


def test_reductions_of_activations_and_of_gradients() -> None:
    """Large all-reduces, some of them in the forward pass; small ones are of norms and losses."""
    step = [
        *STEP,
        comm("t0", K, "all_reduce", lane="tp", waits=("a0",), in_bytes=MIB, group=4, per_node=4),
        comm("t1", K, "all_reduce", lane="tp", waits=("c1",), in_bytes=MIB, group=4, per_node=4,
             backward=True),
        comm("loss", K, "all_reduce", lane="tp", waits=("a1",), in_bytes=4, group=8, per_node=8),
    ]  # fmt: skip
    model = small_model(step)
    assert names(model, tensor_reduces(model)) == ["t0", "t1"]
    assert tensor_degree(model) == 4
    assert tensor_degree(small_model(STEP)) == 1


def test_small_reductions_of_a_described_group_are_of_activations() -> None:
    small = {"lane": "tp", "in_bytes": MIB // 2, "group": 2, "per_node": 2}
    step = [*STEP, comm("t0", K, "all_reduce", waits=("a0",), group_kind="mesh_tensor", **small)]
    assert tensor_degree(small_model(step)) == 2


def test_kernels_on_whole_activations() -> None:
    """1024 tokens by 512: norms and the like. Attention has as many elements, and is split."""
    model = small_model([*STEP, Act("half", K, family="elementwise", dims="[[1024, 256], []]")])
    assert names(model, mark_pointwise(model, read_sizes(model, "tp"))) == ["n0", "m"]


def test_split_work_is_in_proportion_beyond_the_shortest_kernel() -> None:
    acts = [Act("long", 102_500), Act("short", 2_000), Act("other", 50_000)]
    model = small_model(acts)
    halved = split_work(model, np.array([True, True, False]), 4)
    assert [length(halved, name) for name in ("long", "short", "other")] == [27_500, 2_000, 50_000]


def product(name: str, n: int, k: int) -> Act:
    """Return a product of 1024 tokens that takes 100 ns for a step of k, and for 256 more."""
    ns = 2_500 + 100 * (k + 256)
    return Act(name, ns, op="aten::mm", dims=f"[[1024, {k}], [{k}, {n}]]", blocks=1.0)


def test_products_that_are_summed_over_ranks_have_a_shorter_inner_dimension() -> None:
    of = Sizes(tokens=1024, hidden=512, kv_share=1.0)
    model = small_model([*STEP, product("up", 2048, 512), product("down", 512, 2048)])
    quartered = inner_split(model, model, of, 4)
    assert length(quartered, "down") == 2_500 + 100 * (2048 / 4 + 256)
    assert length(quartered, "up") == length(model, "up"), "its result is split, as `split` does"
    restored = inner_split(model, model, of, 1 / 2)
    assert length(restored, "down") == 2_500 + 100 * (2 * 2048 + 256)


def test_of_square_products_half_are_summed_unless_ranks_share_layers_already() -> None:
    square = product("square", 512, 512)
    inner, even = 2_500 + 100 * (512 / 2 + 256), 2_500 + 100 * (512 + 256) / 2
    model = small_model([*STEP, square])
    halved = inner_split(model, model, Sizes(1024, 512, 1.0), 2)
    assert length(halved, "square") == (inner + even) / 2
    shared = small_model([*shared_by_two(), square])
    assert length(inner_split(shared, shared, Sizes(1024, 512, 1.0), 2), "square") == inner


def test_fewer_replicas_reduce_fewer_bytes_among_fewer() -> None:
    """8 ranks reduce 24 MB: 20 us of latency and 420 us. 4 ranks: half of it, 3/4 for 7/8."""
    model = small_model(STEP)
    fewer = fewer_replicas(model, 2)
    assert length(fewer, "r") == round(20_000 + 420_000 / 2 * (3 / 4) / (7 / 8))
    row = model.facts.collective.isin("all_reduce")
    assert fewer.facts.in_bytes[row].tolist() == [12_000_000]
    assert fewer.facts.group_size[row].tolist() == [4]
    assert length(fewer, "a0") == length(model, "a0")
    assert length(fewer, "opt") == length(model, "opt") / 2
    alone = small_model([act for act in STEP if act.name not in ("r", "opt")])
    assert np.array_equal(fewer_replicas(alone, 2).weight, alone.weight), "nothing is reduced"


def test_sizes_shrink_where_they_are_known() -> None:
    facts = small_model(
        [
            comm("a", K, "all_gather", in_bytes=400, out_bytes=-1, group=4),
            comm("b", K, "all_gather", in_bytes=100, out_bytes=800, group=4),
            comm("c", K, "all_gather", in_bytes=100, out_bytes=800, group=4),
        ]
    ).facts
    less = shrink_collectives(facts, np.array([True, True, False]), 4)
    assert less.in_bytes.tolist() == [100, 25, 100]
    assert less.out_bytes.tolist() == [-1, 200, 800]


def test_a_collective_of_neighbours_pays_latency_and_bytes() -> None:
    model = small_model(STEP)
    pace = read_network(model).pace(4, 4)
    assert activation_ns(model, 4, 10 * MIB) == LATENCY_NS + 10 * MIB * pace
    assert activation_ns(model, 4, 0) == LATENCY_NS


@pytest.mark.parametrize("ranks", [(0,), (3, 5)])
def test_each_layer_has_its_collectives_each_way(ranks: tuple[int, ...]) -> None:
    """Two layers: two forward of 10 and 20 us each, one backward of 40 us each, on every rank."""
    model = small_model([replace(act, rank=rank) for rank in ranks for act in STEP])
    many = len(model.graph.start)
    placed = each_layer(model, "tp", [10 * K, 20 * K], [40 * K], 2)
    added = placed.lengths()[many:].tolist()
    assert sorted(added) == sorted(len(ranks) * [10 * K, 20 * K, 10 * K, 20 * K, 40 * K, 40 * K])
    assert placed.facts.group_size[many:].tolist() == [2] * len(added)
    assert (placed.lengths()[:many] == model.lengths()).all()


def test_collectives_of_a_layer_stand_between_its_kernels() -> None:
    """Layers of four kernels: one collective half-way, behind the second; of two one a third of the
    way, behind the second kernel, and one two thirds, behind the third."""

    def layer(names: str, backward: bool = False) -> list[Act]:
        first, *others = names.split()
        acts = [Act(first, K, family="attention", backward=backward)]
        return acts + [Act(name, K, backward=backward) for name in others]

    acts = [
        Act("e", K), *layer("a0 b0 c0 d0"), *layer("a1 b1 c1 d1"),
        *layer("p1 q1 r1 s1", True), *layer("p0 q0 r0 s0", True), Act("opt", K),
    ]  # fmt: skip
    model = small_model(acts)
    many = len(model.graph.start)
    graph = each_layer(model, "tp", [10 * K], [20 * K, 30 * K], 2).graph
    names = [graph.activities.names[n] for n in graph.activities.name]
    events = np.flatnonzero(graph.edges("event"))
    beside = []
    for start, end in zip(graph.start[many:], graph.end[many:], strict=True):
        before = np.flatnonzero(np.isin(graph.end, graph.src[events[graph.dst[events] == start]]))
        after = np.flatnonzero(np.isin(graph.start, graph.dst[events[graph.src[events] == end]]))
        beside.append("".join(names[k] for k in (*before, *after)))
    assert beside == ["b0c0", "b1c1", "q1r1", "r1s1", "q0r0", "r0s0"]


@pytest.mark.parametrize("without", ["forward", "backward"])
def test_layers_must_be_seen_both_ways(without: str) -> None:
    hidden = without == "backward"
    acts = [
        replace(act, family="gemm") if act.family == "attention" and act.backward == hidden else act
        for act in STEP
    ]
    with pytest.raises(UsageError, match="told by attention kernels, are not seen"):
        each_layer(small_model(acts), "sp", [1.0], [1.0], 2)


def test_a_step_without_layers_is_refused() -> None:
    plain = [Act("x", 10), Act("y", 10, backward=True)]
    with pytest.raises(UsageError, match="sp: the layers, told by attention kernels"):
        each_layer(small_model(plain), "sp", [1.0], [1.0], 2)


@pytest.mark.parametrize(
    ("last", "share", "index"), [(18, 1 / 3, 4), (18, 0.5, 5), (18, 1, 8), (19, 1, 8), (12, 0.5, 2)]
)
def test_collectives_lie_at_even_places_of_a_layer(last: int, share: float, index: int) -> None:
    """A lane of activities 10 to 19, a layer from 12 on; behind the last there is no neighbour."""
    lane = np.arange(10, 20)
    assert _find_place(lane, Region(12, last), share) == index
