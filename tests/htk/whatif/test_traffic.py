"""What a rank sends in a step, recorded and after an edit, by the formulas of each strategy."""

from typing import Any

import pytest

from htk.physics.training_job import TrainingJob
from htk.whatif.edited_job import edited_job
from htk.whatif.step_model import StepModel
from htk.whatif.traffic import build_traffic_table
from tests.htk.whatif.sharded_step import MIB, fsdp
from tests.htk.whatif.small_step_model import Act, comm, small_model

JOB = TrainingJob(ranks=4, node=4, tensor=1, pipeline=1, context=1, strategy="full_shard", shards=4)
EXCHANGE = comm("x", 10, "all_to_all", in_bytes=MIB, out_bytes=MIB, group=4, per_node=2)


def rows(model: StepModel, **asked: str) -> dict[tuple[Any, ...], tuple[float, ...]]:
    """Calls, MiB of messages and MiB on the wire, by kind, ranks and scope."""
    edited = model if asked else None
    job = edited_job(JOB, list(asked.items())) if asked else None
    listed = build_traffic_table(model, edited, job).to_pylist()
    variant = "predicted" if asked else "recorded"
    found = [list(row.values()) for row in listed if row["variant"] == variant]
    assert [row[-1] for row in found] == sorted((row[-1] for row in found), reverse=True)
    return {(kind, n, scope): (calls, size / MIB, wire / MIB)
            for _, kind, n, scope, calls, size, wire in found}  # fmt: skip


def test_as_recorded_each_rank_s_mean() -> None:
    acts = [*fsdp((0, 1)), EXCHANGE]
    found = rows(small_model(acts, gpus_per_node=4))
    assert found == {
        ("all_gather", 4, "unknown"): (5, 32 / 4, 32 * 3 / 4),
        ("reduce_scatter", 4, "unknown"): (3, 20, 20 * 3 / 4),
        ("all_to_all", 4, "across nodes"): (0.5, 0.5, 0.5 * 3 / 4),  # one rank's alone
    }


MODEL = small_model([*fsdp(), EXCHANGE], gpus_per_node=4)
KEPT = {("all_to_all", 4, "across nodes"): (1.0, 1.0, 0.75)}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        # 20 MiB and again 12, without the root
        ({"world": "8"}, {
            ("all_gather", 8, "across nodes"): (5, 32 / 8, 32 * 7 / 8),
            ("reduce_scatter", 8, "across nodes"): (3, 20, 20 * 7 / 8),
        }),
        ({"sharding": "shard_grad_op"}, {
            ("all_gather", 4, "within a node"): (3, 20 / 4, 20 * 3 / 4),
            ("reduce_scatter", 4, "within a node"): (3, 20, 20 * 3 / 4),
        }),
        ({"sharding": "hybrid_shard:4", "world": "12"}, {
            ("all_gather", 4, "within a node"): (5, 32 / 4, 32 * 3 / 4),
            ("reduce_scatter", 4, "within a node"): (3, 20, 20 * 3 / 4),
            ("all_reduce", 3, "across nodes"): (3, 5, 2 * 2 / 3 * 5),
        }),
        ({"sharding": "ddp"}, {("all_reduce", 4, "within a node"): (3, 20, 2 * 3 / 4 * 20)}),
    ],
)  # fmt: skip
def test_after_an_edit(
    asked: dict[str, str], expected: dict[tuple[Any, ...], tuple[float, ...]]
) -> None:
    found = rows(MODEL, **asked)
    assert found.keys() == (KEPT | expected).keys()
    for key, values in (KEPT | expected).items():
        assert found[key] == pytest.approx(values), key


def test_other_edits_send_what_the_edited_step_has() -> None:
    again = build_traffic_table(MODEL, MODEL, JOB).to_pylist()
    half = len(again) // 2
    assert [{**row, "variant": ""} for row in again[:half]] == [
        {**row, "variant": ""} for row in again[half:]
    ]
    gone = MODEL.with_lengths(MODEL.is_collective("all_gather"), 0)
    kinds = {row["type"] for row in build_traffic_table(MODEL, gone, JOB).to_pylist()
             if row["variant"] == "predicted"}  # fmt: skip
    assert kinds == {"reduce_scatter", "all_to_all"}


def test_a_call_of_no_length_was_made_and_one_of_unknown_size_sends_nothing() -> None:
    acts = [Act("f", 10), comm("n", 0, "all_gather", out_bytes=MIB, group=2, per_node=2),
            comm("u", 5, "all_reduce", group=2, per_node=1)]  # fmt: skip
    assert rows(small_model(acts)) == {
        ("all_gather", 2, "within a node"): (1, 0, 0.5),
        ("all_reduce", 2, "across nodes"): (1, 0, 0),
    }
