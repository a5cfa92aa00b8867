"""What fits and what does not, where it is known."""

import pytest

from htk.models.decoder import decoder
from htk.models.memory import memory


@pytest.mark.parametrize(
    ("batch", "checkpointing", "fits"),
    [(8, False, True), (64, False, False), (64, True, True)],
)
def test_llama2_7b_on_eight_gpus_of_80_gb(batch: int, checkpointing: bool, fits: bool) -> None:
    """A public run took micro-batches of 64 at 512 tokens, with full checkpointing."""
    need = memory(decoder("llama2-7b"), "full_shard", 8, batch, 512, checkpointing=checkpointing)
    assert (need.total < 80e9) == fits


def test_a_model_replicated_takes_16_bytes_a_parameter() -> None:
    model = decoder("gpt3-126m")
    need = memory(model, "ddp", 1, 1, 128)
    assert need.parameters + need.gradients + need.optimizer == 16 * model.parameters


def test_more_shards_take_less() -> None:
    model = decoder("llama2-13b")
    needs = [memory(model, "full_shard", n, 1, 2048).total for n in (4, 8, 16, 64)]
    assert needs == sorted(needs, reverse=True)
