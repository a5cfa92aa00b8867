"""Attention of an inference server: lengths from the name of its iteration, work by hand."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.physics.op_costs.attention import count_causal_pairs
from htk.physics.op_costs.call import OperatorCall, Tensor
from htk.physics.op_costs.serving import Tokens, cost_served_attention, sides_of, tokens_of
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, launch, of_rank, op, span, write


def test_tokens_of_an_iteration() -> None:
    """Requests of 3 queries on 5 keys and of 2 on 2 are read; two are answered on 4 and 6 keys."""
    name = "execute_8_context_2(sq5sk7sqsq13sqsk19)_generation_2(sq2sk10sqsq2sqsk10)"
    expected = (
        count_causal_pairs(3, 5, "bottom right") + count_causal_pairs(2, 2, "bottom right") + 4 + 6
    )
    assert tokens_of(name) == Tokens(7, 17, expected)
    assert tokens_of("execute_context_1(3)_generation_0(0)") is None
    alone = count_causal_pairs(3, 3, "bottom right") + count_causal_pairs(5, 5, "bottom right")
    assert tokens_of("execute_context_2(8_34)_generation_0(0)") == Tokens(8, 8, alone)
    assert tokens_of("execute_context_2(8_34)_generation_1(4)") is None, "of how many keys"


def test_attention_over_pages_takes_lengths_from_its_iteration(tmp_path: Path) -> None:
    made = op("vllm::unified_attention_with_output", 1, 5)
    shapes: list[Any] = [[64, 2, 8], [64, 1, 8], [64, 1, 8], [64, 2, 8]]
    made["args"] |= {"Input Dims": shapes, "Input type": ["c10::BFloat16"] * 4}
    work = [made, launch(1, 2), kernel("attention", 4, 3, 1)]
    plain = open_trace(
        write(tmp_path / "plain.json", *work, **of_rank(0)), OpenOptions(cache=False)
    )
    assert ask_trace(plain, "roofline").to_pylist()[0]["note"] == "lengths of requests not recorded"
    name = "execute_64_context_1(sq3sk5sqsq9sqsk15)_generation_1(sq1sk4sqsq1sqsk4)"
    told = [span(name, 0, 20), *work]
    trace = open_trace(write(tmp_path / "t.json", *told, **of_rank(0)), OpenOptions(cache=False))
    (row,) = ask_trace(trace, "roofline").to_pylist()
    assert row["flops_per_call"] == 4 * 2 * 8 * (3 + 4 + 5 + 4)
    assert row["bytes_per_call"] == 2 * 4 * 2 * 8 * 2 + 2 * 9 * 1 * 8 * 2
    assert "iteration" in row["note"]


def test_prompts_and_answers_apart() -> None:
    """A prompt of 3 queries on 5 keys beside answers on 4 and 6 keys."""
    name = "execute_5_context_1(sq3sk5sqsq9sqsk15)_generation_2(sq2sk10sqsq2sqsk10)"
    prompt = Tokens(3, 5, count_causal_pairs(3, 5, "bottom right"))
    assert sides_of(name) == (prompt, Tokens(2, 10, 4 + 6))
    assert sides_of("ProfilerStep#5") is None


def test_attention_reads_each_key_once_and_multiplies_each_pair_twice() -> None:
    """4 heads of 16 ask, 2 heads of the cache answer: 10 pairs, 5 queries on 7 keys."""
    queries = Tensor((8, 4, 16), "c10::BFloat16")  # padded to 8
    pages = Tensor((100, 32, 2, 16), "c10::Float8_e4m3fn")
    call = OperatorCall("vllm::unified_attention", (queries, pages), ())
    cost = cost_served_attention(call, Tokens(5, 7, 10))
    assert cost.flops == 2 * (2 * 10 * 4 * 16)  # scores, then their sum of values
    asked, kept = 5 * 4 * 16 * 2, 7 * 2 * 16 * 1
    assert cost.bytes == 2 * asked + 2 * kept
    assert (cost.family, cost.dtype, cost.matrix) == ("attention", "bf16", True)
    with pytest.raises(LookupError, match="no queries and keys"):
        cost_served_attention(
            OperatorCall("vllm::unified_attention", (queries,), ()), Tokens(5, 7, 10)
        )


def test_sizes_are_of_requests_that_are_answered_alone() -> None:
    """Three requests of one query each look back on 30 tokens in all, 10 at the mean."""
    queries = Tensor((8, 4, 16), "c10::BFloat16")
    call = OperatorCall("vllm::unified_attention", (queries, queries, queries), ())
    sizes = dict(cost_served_attention(call, Tokens(3, 30, 30)).dims)
    assert sizes == {
        **{"batch": 3, "heads": 4, "kv_heads": 4, "head_size": 16},
        **{"query_length": 1, "key_length": 10},
    }
    assert not cost_served_attention(call, Tokens(5, 7, 10)).dims
    narrow = Tensor((100, 32, 2, 16), "c10::Float8_e4m3fn")
    mixed = OperatorCall("vllm::unified_attention", (queries, narrow), ())
    assert not cost_served_attention(mixed, Tokens(3, 30, 30)).dims, (
        "no library of two formats was measured"
    )
