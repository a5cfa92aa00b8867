"""Other lengths of sequences."""

from itertools import product
from math import isnan

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import seq
from tests.htk.whatif.small_step_model import Act, comm, length, small_model

STEP = (
    Act("embed", 12_500, family="other", op="aten::embedding", dims="[[100, 512], [4, 16]]"),
    Act("attention", 102_500, family="attention", op="aten::_flash", blocks=20.0),
    Act("norm", 12_500, family="norm", op="aten::norm"),
    Act("adam", 50_000, family="optimizer", op="aten::_fused_adamw_"),
)


@pytest.mark.parametrize("value", ["32", "2x"])
def test_attention_grows_with_the_square(value: str) -> None:
    found = seq.apply(small_model(STEP), value)
    assert length(found, "norm") == 2_500 + 2 * 10_000
    assert length(found, "attention") == 2_500 + 4 * 100_000
    assert length(found, "adam") == 50_000
    assert found.samples == 2  # of the recorded length: tokens


def test_as_long_as_now() -> None:
    model = small_model(STEP)
    same = seq.apply(model, "16")
    assert (same.weight == model.weight).all()
    assert same.work == 1, "as much is computed as was"
    assert isnan(seq.apply(model, "32").work), "attention grows otherwise than the rest"


def test_samples_are_padded_to_the_longest_of_their_micro_batch() -> None:
    """Against every micro-batch of four samples that there can be."""
    shares = {8: 0.7, 32: 0.2, 64: 0.1}
    tokens = pairs = 0.0
    for four in product(shares, repeat=4):
        chance = shares[four[0]] * shares[four[1]] * shares[four[2]] * shares[four[3]]
        tokens, pairs = tokens + chance * max(four), pairs + chance * max(four) ** 2
    found = seq.compute_lengths(sorted(shares.items()), 4)
    assert (found.tokens, found.pairs) == (pytest.approx(tokens), pytest.approx(pairs))
    answer = seq.apply(small_model(STEP), "64:0.1,8:0.7,32:0.2")
    assert length(answer, "norm") == round(2_500 + 10_000 * tokens / 16)


def test_packed_samples_are_not_padded() -> None:
    found = seq.apply(small_model(STEP), "8:0.5,24:0.5,packed")
    assert length(found, "norm") == 12_500
    assert length(found, "attention") == 2_500 + 100_000 * (8**2 + 24**2) / 2 / 16**2


@pytest.mark.parametrize("value", ["8:0.5,24:0.2", "8:x", "long", "packed"])
def test_lengths_are_given_with_shares(value: str) -> None:
    with pytest.raises(UsageError, match="seq"):
        seq.apply(small_model(STEP), value)


def test_a_length_needs_shapes() -> None:
    with pytest.raises(UsageError, match="record_shapes"):
        seq.apply(small_model(STEP[2:]), "32")


def test_lengths_far_outside_what_was_tested() -> None:
    with pytest.raises(UsageError, match="up to 32 times"):
        seq.apply(small_model(STEP), "40x")


def test_a_length_is_that_of_whole_sequences_where_ranks_share_them() -> None:
    ring = comm("ring", 30_000, "send_recv", lane="cp", group=2, per_node=2, group_kind="mesh_cp")
    model = small_model((*STEP, ring))
    assert (seq.apply(model, "32").weight == model.weight).all()
    assert length(seq.apply(model, "64"), "norm") == 2_500 + 2 * 10_000


def test_where_ranks_may_share_sequences_their_length_is_not_known() -> None:
    """An exchange of a group without a description may be a ring of context parallelism."""
    model = small_model((*STEP, comm("x", 30_000, "all_to_all", lane="x", group=2, per_node=2)))
    with pytest.raises(UsageError, match="give a factor"):
        seq.apply(model, "32")
    assert length(seq.apply(model, "2x"), "norm") == 2_500 + 2 * 10_000
