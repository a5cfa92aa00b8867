"""What a step gathers and reduces of its parameters, told by its collectives alone."""

import pytest

from htk.whatif.parallelism import find_replicated, find_sharded, mark_replicating, scale_optimizer
from tests.htk.whatif.sharded_step import MIB, fsdp, gather
from tests.htk.whatif.small_step_model import Act, comm, length, small_model


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("ranks", [(0,), (1, 2)])
def test_units_and_what_is_gathered_again(marked: bool, ranks: tuple[int, ...]) -> None:
    """Also where nothing says which gathers are of the backward pass: units are reduced once."""
    model = small_model(fsdp(ranks, marked=marked))
    now = find_sharded(model)
    assert now is not None
    assert (now.strategy, now.ranks, now.replicas, now.world) == ("full_shard", 4, 1, 4)
    assert now.unit_bytes == (8 * MIB, 6 * MIB, 6 * MIB)
    assert now.reduced_bytes == 20 * MIB, "of one rank"
    names = model.graph.activities.names
    again = {names[n] for n in model.graph.activities.name[now.backward].tolist()}
    assert again == {"h1", "h2"}
    assert not mark_replicating(model).any() and find_replicated(model) is None


def test_without_a_second_gather() -> None:
    now = find_sharded(small_model(fsdp(again=False)))
    assert now is not None and now.strategy == "shard_grad_op" and not now.backward.any()


def test_replicas_of_shard_groups() -> None:
    copies = [
        comm(f"c{k}", 10, "all_reduce", in_bytes=2 * MIB, group=3, backward=True, waits=(f"r{k}",))
        for k in (2, 1, 0)
    ]
    now = find_sharded(small_model([*fsdp(), *copies]))
    assert now is not None
    assert (now.strategy, now.ranks, now.replicas, now.world) == ("hybrid_shard", 4, 3, 12)


def test_gathers_alone_are_no_shards() -> None:
    assert find_sharded(small_model([Act("f", 100), gather("g", MIB)])) is None
    unknown = [gather("g", MIB), comm("r", 10, "reduce_scatter", in_bytes=0, group=4)]
    assert find_sharded(small_model([Act("f", 100), *unknown])) is None


def reduced(name: str, size: int, ranks: int, after: str, **more: object) -> Act:
    return comm(name, 10, "all_reduce", in_bytes=size, group=ranks, waits=(after,), **more)


def test_all_reduces_of_gradients() -> None:
    """Tensor parallelism reduces activations forward and backward, gradients are larger or of
    another group; what is small is a metric."""
    model = small_model(
        [
            Act("f", 100),
            reduced("forward", 4 * MIB, 2, "f"),
            Act("b", 100, backward=True, waits=("forward",)),
            reduced("backward", 4 * MIB, 2, "b", backward=True),
            reduced("gradient of two", 5 * MIB, 2, "b", backward=True),
            reduced("gradient", 3 * MIB, 8, "b", backward=True),
            reduced("least", MIB, 8, "b", backward=True),
            reduced("metric", MIB - 1, 8, "b"),
        ]
    )
    names = model.graph.activities.names
    found = {names[n] for n in model.graph.activities.name[mark_replicating(model)].tolist()}
    assert found == {"gradient of two", "gradient", "least"}
    now = find_replicated(model)
    assert now is not None
    assert (now.strategy, now.ranks, now.world, now.reduced_bytes) == ("ddp", 8, 8, 9 * MIB)
    assert now.unit_bytes == () and not now.backward.any()


def test_of_two_ranks_the_bytes_of_one() -> None:
    acts = [
        act
        for rank in (0, 5)
        for act in (
            Act("b", 100, rank=rank, backward=True),
            reduced("r", 3 * MIB, 8, "b", rank=rank, backward=True),
        )
    ]
    now = find_replicated(small_model(acts))
    assert now is not None and now.reduced_bytes == 3 * MIB


def test_the_optimizer_works_on_what_a_rank_owns() -> None:
    model = scale_optimizer(
        small_model([Act("f", 100), Act("adam", 90, family="optimizer")]), 1 / 3
    )
    assert (length(model, "f"), length(model, "adam")) == (100, 30)
