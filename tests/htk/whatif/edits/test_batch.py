"""Which kernels grow with the micro-batch, and how."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import batch
from tests.htk.whatif.small_step_model import Act, length, small_model

TOKENS = "[[64, 512], [512, {}]]"  # 4 samples of 16 tokens
STEP = (
    Act("embed", 12_500, family="other", op="aten::embedding", dims="[[100, 512], [4, 16]]"),
    Act("one wave", 100_000, op="aten::mm", dims=TOKENS.format(512), blocks=1.0),
    Act("half a wave", 100_000, op="aten::mm", dims=TOKENS.format(256), blocks=0.5),
    Act("many waves", 100_000, op="aten::mm", dims=TOKENS.format(10240), blocks=20.0),
    Act("weight's", 102_500, op="aten::mm", dims="[[512, 64], [64, 512]]", blocks=1.0),
    Act("norm", 12_500, family="norm", op="aten::norm"),
    Act("adam", 50_000, family="optimizer", op="aten::_fused_adamw_"),
    Act("bucket", 40_000, family="elementwise", op="aten::mul", gradient=True),
)


def lengths(value: str) -> dict[str, int]:
    found = batch.apply(small_model(STEP), value)
    return {a.name: length(found, a.name) for a in STEP}


def test_twice() -> None:
    """Waves of blocks, bytes, sums over tokens, all above 2.5 us; the optimizer stays."""
    assert lengths("8") == {
        "embed": 22_500,
        "one wave": 197_500,
        "half a wave": 100_000,
        "many waves": 197_500,
        "weight's": 122_500,  # (128 + 256) / (64 + 256) times as long: k beside its ramp
        "norm": 22_500,
        "adam": 50_000,
        "bucket": 40_000,  # a copy of parameters' gradients
    }


def test_half_takes_smaller_tiles() -> None:
    found = lengths("0.5x")
    between = round(2_500 + 97_500 * 0.5**0.5)  # a whole wave and half of one
    assert found["one wave"] == between
    assert found["many waves"] == 2_500 + 97_500 / 2
    assert found["norm"] == 7500


def test_half_as_much_again_takes_whole_waves() -> None:
    """A wave and a half lasts two; three quarters of one last one; bytes grow as they are."""
    grown = lengths("6")
    assert grown["one wave"] == 197_500
    assert grown["half a wave"] == 100_000
    assert grown["many waves"] == 2_500 + 97_500 * 1.5
    assert grown["norm"] == 17_500 and grown["adam"] == 50_000


def test_fused_norms_are_not_the_optimizers() -> None:
    norm = Act("fused norm", 12_500, family="norm", op="aten::_fused_rms_norm_backward")
    changed = batch.apply(small_model((*STEP, norm)), "8")
    assert length(changed, "fused norm") == 22_500


def test_casts_of_weights_stay() -> None:
    weight = Act("cast", 12_500, family="copy", op="aten::copy_", dims="[[512, 256], [512, 256]]")
    tokens = Act("cast of tokens", 12_500, family="copy", op="aten::copy_", dims="[[64, 512]]")
    changed = batch.apply(small_model((*STEP, weight, tokens)), "8")
    assert length(changed, "cast") == 12_500
    assert length(changed, "cast of tokens") == 22_500


def test_copies_of_inputs_grow() -> None:
    images = Act("input", 10_000, kind="memory", op="aten::copy_", dims="[[4, 3, 224, 224]]")
    offloaded = Act("state", 10_000, kind="memory", op="aten::copy_", dims="[[512, 512]]")
    changed = batch.apply(small_model((*STEP, images, offloaded)), "8")
    assert length(changed, "input") == 20_000
    assert length(changed, "state") == 10_000


def test_samples_count() -> None:
    found = batch.apply(small_model(STEP), "3x")
    assert found.samples == found.activation_scale == 3


def test_the_batch_must_be_known() -> None:
    with pytest.raises(UsageError, match="record_shapes"):
        batch.apply(small_model(STEP[5:6]), "8")


def test_attention_is_not_told_by_whole_waves() -> None:
    step = (STEP[0], Act("a", 102_500, family="attention", op="aten::_flash", blocks=1.25))
    assert length(batch.apply(small_model(step), "2x"), "a") == 202_500


def test_a_product_that_passes_a_gradient_on_takes_whole_waves() -> None:
    """64 tokens of a width of 64: the second of two products sums over tokens."""
    shapes = "[[64, 64], [64, 64]]"
    both = {"op": "aten::mm", "dims": shapes, "blocks": 1.25, "backward": True}
    step = (
        Act("embed", 12_500, family="other", op="aten::embedding", dims="[[100, 64], [4, 16]]"),
        Act("on", 100_000, **both),
        Act("weight's", 102_500, **both),
    )
    found = batch.apply(small_model(step), "2x")
    assert length(found, "on") == 2_500 + 97_500 * 3 / 2  # three waves after two
    assert length(found, "weight's") == 122_500


@pytest.mark.parametrize(
    ("value", "sigma"),
    [("2x", 0.04), ("1.5x", 0.04), ("0.5x", 0.04), ("2.5x", 0.08), ("0.25x", 0.08 / 3)],
)
def test_batches_far_from_the_recorded_one_are_less_sure(value: str, sigma: float) -> None:
    """Of what a small batch leaves: a quarter stays, three quarters go."""
    norms = (STEP[0], Act("norm", 12_500, family="norm", op="aten::norm"))
    assert batch.apply(small_model(norms), value).spread["compute"] == pytest.approx(sigma)
