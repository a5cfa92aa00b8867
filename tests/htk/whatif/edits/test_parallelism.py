"""Tensor, sequence, context, pipeline and expert parallelism, by their formulas.

Two layers of attention: batch 2, 8 heads, length 512, width 64, so 1024 tokens of 512, in halves 1
MB. The network: an all-reduce of 24 MB over 8 ranks of a node takes 20 us and 0.01 ns a byte.
"""

from dataclasses import replace

import pytest

from htk.errors import UsageError
from htk.whatif.edits import accumulation, cp, ep, pp, sp, tp
from tests.htk.whatif.small_step_model import Act, comm, length, period, small_model

K = 1000
X = 2 * 1024 * 512  # bytes of activations
SHAPE = "[2, 8, 512, 64]"
DIMS = f"[{SHAPE}, {SHAPE}, {SHAPE}]"
WHOLE = "[[1024, 512], []]"


def attention(name: str, backward: bool = False) -> Act:
    op = "aten::_flash_attention" + ("_backward" if backward else "_forward")
    return Act(name, 1002_500, family="attention", op=op, dims=DIMS, backward=backward)


STEP = [
    Act("e", 100 * K, family="other", op="aten::embedding", dims="[[32000, 512], [2, 512]]"),
    attention("a0"),
    Act("n0", 200 * K, family="norm", op="aten::norm", dims=WHOLE),
    attention("a1"),
    attention("c1", True),
    Act("m", 200 * K, family="elementwise", op="aten::mul", dims=WHOLE, backward=True),
    attention("c0", True),
    Act("opt", 800 * K, waits=("r",), family="optimizer"),
    comm(
        "r",
        440 * K,
        "all_reduce",
        waits=("c0",),
        in_bytes=24_000_000,
        group=8,
        per_node=8,
        backward=True,
    ),
]


def test_tensor_parallelism_splits_and_reduces() -> None:
    found = tp.apply(small_model(STEP), "2")
    assert length(found, "a0") == 502_500
    assert length(found, "n0") == 200 * K
    assert length(found, "m") == 200 * K
    inserted = found.lengths()[len(STEP) :]
    assert len(inserted) == 8  # two of each layer, forward and backward
    assert set(inserted.tolist()) == {round(20_000 + X * 0.01)}
    assert found.samples == found.activation_scale == 0.5
    assert found.low_confidence
    # parameters halve, 3/4 of their bytes move in place of 7/8
    assert length(found, "r") == round(20_000 + 420_000 / 2 * (3 / 4) / (7 / 8))


@pytest.mark.parametrize("far", [2, 2000, 1 << 20])
def test_tensor_groups_reduce_each_for_themselves(far: int) -> None:
    """Ranks 0 and `far` are of two groups, however many groups there are: none waits for both."""
    model = small_model([replace(act, rank=rank) for rank in (0, far) for act in STEP])
    found = tp.apply(model, "2")
    of_a_group = 8 * (2 + 1)  # of each collective its start, its end and when all have come
    assert len(found.graph.time) - len(model.graph.time) == 2 * of_a_group


def test_sequence_parallelism_splits_the_rest() -> None:
    both = sp.apply(tp.apply(small_model(STEP), "2"), "on")
    assert length(both, "n0") == 2500 + (200 * K - 2500) // 2
    again = both.lengths()[len(STEP) + 8 :]
    assert set(again.tolist()) == {round(20_000 + X * 0.01)}  # 2 · 1/2 · x
    with pytest.raises(UsageError, match="tensor parallelism"):
        sp.apply(small_model(STEP), "on")


def test_context_parallelism_sends_keys_and_values_round() -> None:
    found = cp.apply(small_model(STEP), "2")
    assert length(found, "a0") == 502_500
    assert found.samples == 0.5
    assert set(found.lengths()[len(STEP) :].tolist()) == {0}  # 25 us behind 502
    assert cp.apply(small_model(STEP), "1").samples == 1


def test_a_pipeline_waits_to_be_filled() -> None:
    model = small_model(STEP)
    found = pp.apply(model, "2")
    micro_batch = period(model) - 440 * K - 800 * K  # reduced and optimized once
    fill = 2 * (20_000 + X * 0.01)
    # Of the forward pass e is in no layer: it is not shared, and the other stage waits for it.
    output = micro_batch * 100 * K / (100 * K + 2 * 1002_500 + 200 * K)
    each = (micro_batch - output) / 2 + output
    assert found.added == {"bubble": round(each + output + fill)}
    halved = pp.apply(model, "stages=2,interleave=2")
    assert halved.added["bubble"] == round(each / 2 + output + fill)


def test_a_pipeline_of_more_micro_batches_is_filled_once() -> None:
    model = small_model(STEP)
    one, four = (pp.apply(accumulation.apply(model, n), "2").added["bubble"] for n in "14")
    micro_batch = period(model) - 440 * K - 800 * K
    output = micro_batch * 100 * K / (100 * K + 2 * 1002_500 + 200 * K)
    assert four - one == pytest.approx(3 * output, abs=2)


def one_forward_one_backward(stages: int, many: int, each: float, output: float) -> list[float]:
    """Run a pipeline event by event; return when it is over, and how long each stage works.

    A stage's part of a micro-batch takes a third of its time forward, two thirds backward; what
    the last one holds besides takes `output`.
    """
    took = [each + (output if stage == stages - 1 else 0.0) for stage in range(stages)]
    orders = []
    for stage in range(stages):
        ahead = min(stages - stage, many)
        order = [("f", k) for k in range(ahead)]
        for k in range(many):
            order.append(("b", k))
            if ahead + k < many:
                order.append(("f", ahead + k))
        orders.append(order)
    done: dict[tuple[str, int, int], float] = {}
    free = [0.0] * stages
    while any(orders):
        for stage, order in enumerate(orders):
            while order:
                way, k = order[0]
                before = ("f", stage - 1, k) if way == "f" else ("b", stage + 1, k)
                outside = before[1] in (-1, stages)
                if not outside and before not in done:
                    break
                begin = max(free[stage], 0.0 if outside else done[before])
                free[stage] = begin + took[stage] * (1 if way == "f" else 2) / 3
                done[way, stage, k] = free[stage]
                order.pop(0)
    return [max(free), *(many * part for part in took)]


@pytest.mark.parametrize(("stages", "many"), [(2, 1), (2, 4), (4, 2), (4, 8)])
def test_a_pipeline_run_event_by_event_takes_as_long_and_idles_as_much(
    stages: int, many: int
) -> None:
    model = accumulation.apply(small_model(STEP), str(many))
    found = pp.apply(model, str(stages))
    micro_batch = period(small_model(STEP)) - 440 * K - 800 * K
    output = micro_batch * 100 * K / (100 * K + 2 * 1002_500 + 200 * K)
    each = (micro_batch - output) / stages
    over, *busy = one_forward_one_backward(stages, many * stages, each, output)
    fill = 2 * (stages - 1) * (20_000 + X * 0.01)
    step = many * micro_batch + found.added["bubble"] - fill
    # The stages before the last fill and drain without the output, which the answer leaves in.
    assert over <= step <= over + (stages - 1) * output + 2
    idle = over - sum(busy) / stages
    assert idle <= found.added_idle <= idle + (stages - 1) * output + 2
    assert found.added_exposed == pytest.approx(fill)


def test_experts_on_more_ranks_send_more() -> None:
    model = small_model(
        [
            Act("x", 100 * K),
            comm(
                "d", 160 * K, "all_to_all", in_bytes=8 << 20, out_bytes=8 << 20, group=2, per_node=2
            ),
        ]
    )
    # latency 20, 140 for half of the tokens; of 8 ranks 7/8 leave
    assert length(ep.apply(model, "8"), "d") == 20 * K + 245 * K
    assert length(ep.apply(model, "1"), "d") == 0
    with pytest.raises(UsageError, match="no all-to-alls"):
        ep.apply(small_model(STEP), "8")


def test_tensor_parallelism_that_is_there_is_spread_further() -> None:
    """Of two ranks now: each sends 2 · 1/2 of a message, of four 2 · 3/4 of the same message."""
    reduces = [
        comm(f"t{k}", 120 * K, "all_reduce", lane="tp", waits=(after,), in_bytes=8_000_000, group=2,
             per_node=2, backward=back)
        for k, (after, back) in enumerate((("a0", False), ("a1", False), ("c1", True)))
    ]  # fmt: skip
    model = small_model([*STEP, *reduces])
    found = tp.apply(model, "4")
    assert len(found.graph.start) == len(model.graph.start), "nothing is inserted"
    assert length(found, "t0") == length(found, "t2") == 20 * K + 100 * K * (3 / 4) / (1 / 2)
    assert length(found, "a0") == 502_500 and length(found, "n0") == 200 * K
    assert found.samples == 0.5 and found.tensor == 4
    alone = tp.apply(model, "1")
    assert length(alone, "t0") == length(alone, "t1") == 0
    assert length(alone, "a0") == 2_002_500 and alone.samples == 2
    assert any("2 already" in words for words in tp.apply(model, "2").assumptions)
