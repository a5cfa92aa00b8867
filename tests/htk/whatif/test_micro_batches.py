"""What one more micro-batch takes."""

from htk.whatif.micro_batches import micro_batch
from tests.htk.whatif.small_step_model import Act, comm, period, small_model

MIB = 1 << 20
EMBEDDING = {"op": "aten::embedding", "dims": "[[100, 8], [4, 16]]"}


def reduced(ranks: int, size: int = 2 * MIB) -> Act:
    return comm(
        "r", 40, "all_reduce", waits=("b1",), in_bytes=size, group=ranks, backward=True, per_node=1
    )


def step(ranks: int = 6) -> list[Act]:
    """Two micro-batches of 100 forward and 200 backward, a reduction, an optimizer of 70."""
    return [
        Act("f0", 100, **EMBEDDING),  # type: ignore[arg-type]
        Act("b0", 200, backward=True),
        Act("f1", 100, **EMBEDDING),  # type: ignore[arg-type]
        Act("b1", 200, backward=True),
        Act("adam", 70, waits=("r",), family="optimizer"),
        reduced(ranks),
    ]


def test_one_more_takes_the_step_without_what_is_done_once() -> None:
    """The reduction and the optimizer come once; a micro-batch is the half of the rest."""
    model = small_model(step())
    assert period(model) == 600 + 40 + 70
    found = micro_batch(model)
    assert (found.ns, found.exposed, found.idle) == (300, 0, 0)


def test_communication_of_each_micro_batch_is_part_of_it() -> None:
    """Shards are gathered 30 and reduced 60 for each, both exposed."""
    acts = [
        comm("g0", 30, "all_gather", out_bytes=MIB, group=2),
        Act("f0", 100, waits=("g0",)),
        Act("b0", 200, backward=True),
        comm("s0", 60, "reduce_scatter", waits=("b0",), in_bytes=MIB, group=2, backward=True),
        comm("g1", 30, "all_gather", out_bytes=MIB, group=2),
        Act("f1", 100, waits=("g1",)),
        Act("b1", 200, backward=True),
        comm("s1", 60, "reduce_scatter", waits=("b1",), in_bytes=MIB, group=2, backward=True),
        Act("adam", 70, waits=("s1",), family="optimizer"),
    ]
    model = small_model(acts)
    found = micro_batch(model)
    assert found.ns == 30 + 300 + 60
    assert found.exposed == 30 + 60
    assert found.idle == 0


def test_one_more_in_a_pipeline_takes_what_its_slowest_stage_computes() -> None:
    """Two micro-batches of 300; what fills and drains the pipeline comes once."""
    message = comm("m", 1000, "send", group=2, group_kind="mesh_pipeline")
    found = micro_batch(small_model([*step(), message]))
    assert (found.ns, found.exposed, found.idle) == (300, 0, 0)
