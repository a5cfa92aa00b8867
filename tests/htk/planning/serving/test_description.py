"""The words beside the table of a server's plan."""

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.serving.description import check_memory, describe_server
from htk.planning.serving.server import Server


def test_weights_and_room_are_those_of_a_gpu() -> None:
    """16.06 billion bytes of 8.03 billion parameters, halved by two GPUs; 32 layers keep keys and
    values of 8 heads of 128, two bytes each: 128 KiB a token, 64 of a GPU."""
    facts = describe_server(Server(decoder("llama3-8b"), gpu("h100"), tensor_parallel=2))
    assert facts["model"] == "llama3-8b, 8.03 billion parameters, weights in bf16, KV cache in bf16"
    assert facts["replica"].startswith("2 × ")
    assert "weights 7.48 GiB of a GPU" in facts["memory"] and "token 64.0 KiB" in facts["memory"]


def test_stages_of_a_pipeline_are_told() -> None:
    server = Server(decoder("llama3-8b"), gpu("h100"), pipeline_parallel=4)
    assert describe_server(server)["replica"].startswith("4 stages of 1 × ")


def test_a_model_that_does_not_fit_is_refused() -> None:
    check_memory(Server(decoder("llama3-8b"), gpu("h100")))
    with pytest.raises(
        UsageError, match=r"weights alone take .* do not fit: share them among more"
    ):
        check_memory(Server(decoder("llama3-70b"), gpu("h100")))
