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


def test_zero_2_by_hand() -> None:
    """SHARD_GRAD_OP on 8 GPUs: units stay whole from forward to backward; gradients of two layers
    are whole until they are scattered; the rest is spread.

    LLaMA-2 7B has 32 layers of 4 * 4096^2 + 3 * 4096 * 11008 + 2 * 4096 parameters, and
    2 * 32000 * 4096 + 4096 beside them.
    """
    layer, beside = 202_383_360, 262_148_096
    every = 32 * layer + beside
    need = memory(decoder("llama2-7b"), "shard_grad_op", 8, 8, 512)
    assert need.resident == 16 * every // 8 + 2 * 2 * layer
    assert need.gathered == 2 * every
    assert need.parameters == 2 * every // 8 + 2 * every
    assert need.activations == 32 * 40 * 8 * 512 * 4096
    gib = (need.total - need.reserved - need.logits) / 2**30
    assert gib == pytest.approx(45.86, abs=0.01)  # 12.55 + 0.75 + 12.55 + 20


def test_one_gpu_shares_nothing() -> None:
    alone = memory(decoder("llama2-7b"), "ddp", 1, 1, 512)
    for strategy in ("shard_grad_op", "full_shard"):
        assert memory(decoder("llama2-7b"), strategy, 1, 1, 512) == alone
