"""Groups by their description, as DeviceMesh and Megatron give it."""

import pytest

from htk.whatif.group_kinds import described_degree
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, small_model


def step(kind: str | None, collective: str = "all_reduce") -> StepModel:
    return small_model([Act("a", 10), comm("c", 10, collective, group=4, group_kind=kind)])


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        ("mesh_tp", "tensor"),
        ("mesh_tensor", "tensor"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("mesh_cp", "context"),
        ("CONTEXT_PARALLEL_GROUP", "context"),
        ("mesh_pipeline", "pipeline"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("mesh_ep", "expert"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert"),
        ("default_pg", None),
        ("mesh_data", None),
        ("mesh_dp_shard", None),
        ("mesh_expert_replicate", None),
    ],
)
def test_a_description_says_what_ranks_share(description: str, kind: str | None) -> None:
    for other in ("tensor", "context", "pipeline", "expert"):
        assert described_degree(step(description), other) == (4 if other == kind else 1)


def test_messages_without_a_description_leave_it_open() -> None:
    assert described_degree(step(None, "send"), "context") is None
    assert described_degree(step(None, "send"), "pipeline") is None
    assert described_degree(step("mesh_pp", "send"), "context") == 1
    assert described_degree(step(None, "all_to_all"), "expert") is None
    assert described_degree(step(None, "all_to_all"), "pipeline") == 1
