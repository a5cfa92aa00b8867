"""Pipelines: filled and drained, against a run event by event."""

import pytest

from htk.whatif.edited_job import edited_job
from htk.whatif.edits import accumulation, pp
from htk.whatif.predict import predict_answer
from tests.htk.whatif.edits.attention_step import STEP, K, X
from tests.htk.whatif.named_jobs import started
from tests.htk.whatif.small_step_model import period, small_model


def test_a_pipeline_waits_to_be_filled() -> None:
    model = small_model(STEP)
    found = pp.apply(model, "2")
    micro_batch = period(model) - 440 * K - 800 * K  # reduced and optimized once
    fill = 2 * (20_000 + X * 0.01)
    # Of the forward pass e is in no layer: it is not shared, and the other stage waits for it.
    output = micro_batch * 100 * K / (100 * K + 2 * 1002_500 + 200 * K)
    each = (micro_batch - output) / 2
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
    assert step == pytest.approx(over, abs=2)
    assert found.added_idle == pytest.approx(over - sum(busy) / stages, abs=2)
    assert found.added_exposed == pytest.approx(fill)


def test_without_stages_a_further_micro_batch_takes_what_it_takes_there() -> None:
    answer = predict_answer(started("pp 2"), [("pp", "1"), ("accumulation", "2x")])
    assert answer.step_ns == pytest.approx(started("four micro-batches").step_ns, rel=0.03)


def test_a_pipeline_of_all_ranks_needs_no_description() -> None:
    start = started("two stages")
    assert (start.job.pipeline, start.job.context) == (2, 1)
    one = edited_job(start.job, [("pp", "1")])
    assert (one.pipeline, one.micro_batches) == (1, 1)
