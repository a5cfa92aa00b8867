"""What a step works on, by what its operators were given; and the products that sum over tokens."""

import pytest

from htk.whatif.shapes import read_inputs, sums_over_tokens
from tests.htk.whatif.small_step_model import Act, small_model


def op(name: str, dims: str | None, number: int = 0) -> Act:
    return Act(f"{name}{number}", 10, op=name, dims=dims)


EMBEDDING = op("aten::embedding", "[[32000, 512], [4, 16]]")
LOOKUP = op("aten::index_select", "[[32000, 512], [3, 5]]")
HEADS_SECOND = op("aten::_scaled_dot_product_attention", "[[6, 8, 128, 64], [6, 8, 128, 64]]")
HEADS_THIRD = op("aten::_flash_attention_forward", "[[6, 128, 8, 64], [6, 128, 8, 64]]")
CONVOLUTION = op("aten::conv2d", "[[32, 3, 224, 224], [64, 3, 7, 7]]")


@pytest.mark.parametrize(
    ("acts", "batch", "tokens"),
    [
        ([EMBEDDING], 4, 64),
        ([LOOKUP], 3, 15),
        ([HEADS_SECOND], 6, 6 * 128),
        ([HEADS_THIRD], 6, 6 * 128),
        ([CONVOLUTION], 32, None),
        ([CONVOLUTION, HEADS_THIRD], 6, 6 * 128),
        ([HEADS_THIRD, EMBEDDING], 4, 64),
        # a shape votes once, however often it is there; two that agree outvote an embedding
        ([EMBEDDING, HEADS_THIRD, HEADS_SECOND, op(HEADS_SECOND.op or "", HEADS_SECOND.dims, 1)],
         4, 64),
        ([EMBEDDING, HEADS_THIRD, HEADS_SECOND,
          op("aten::_efficient_attention", "[[6, 128, 4, 64]]")], 6, 6 * 128),
        ([op("aten::embedding", "[[32000, 512], [4, 16, 2]]")], None, None),
        ([op("aten::_flash_attention_backward", "[[6, 128, 8, 64]]")], None, None),
        ([op("aten::convolution_backward", "[[32, 3, 224, 224]]")], None, None),
        ([op("aten::conv1d", "[[32, 3, 224]]")], None, None),
        ([Act("a", 10)], None, None),
    ],
)  # fmt: skip
def test_what_it_works_on(acts: list[Act], batch: int | None, tokens: int | None) -> None:
    assert tuple(read_inputs(small_model(acts))) == (batch, tokens)


def test_gradients_of_weights_sum_over_tokens() -> None:
    products = [
        op("aten::mm", "[[64, 512], [512, 2048]]"),  # 64 tokens, forward
        op("aten::mm", "[[512, 64], [64, 2048]]"),  # the weight's gradient
        op("aten::addmm", "[[2048], [512, 64], [64, 2048]]"),
        op("aten::mm", "[[64, 2048], [2048, 512]]"),
        op("aten::bmm", "[[2, 512, 64], [2, 64, 8]]"),  # no matrices
        op("aten::mm", None),
    ]
    acts = [Act(f"{k}", 10, op=p.op, dims=p.dims) for k, p in enumerate(products)]
    assert sums_over_tokens(small_model([EMBEDDING, *acts])).tolist() == [
        False, False, True, True, False, False, False,
    ]  # fmt: skip
    assert not sums_over_tokens(small_model(acts)).any(), "nothing tells the tokens"
