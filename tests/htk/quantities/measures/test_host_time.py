"""Where the host's time goes, held to a painting of every microsecond."""

import random
from pathlib import Path

import pytest

from htk.quantities.measures.host_time import COLLECTIVES, NEEDED, REST, host_time
from htk.traces.trace.opening import open_trace
from tests.kineto_file import Event, of_rank, op, span, step, write

STEP_US = 100
Spans = list[tuple[int, int]]  # starts and lengths


def _draw_spans(draw: random.Random, end: int) -> Spans:
    """Return spans that do not overlap, so that those of a thread need not nest."""
    starts = sorted(draw.sample(range(1, end - 1), 5))
    limits = zip(starts, [*starts[1:], end], strict=True)
    return [(start, draw.randint(1, limit - start)) for start, limit in limits]


def _paint(spans: Spans) -> set[int]:
    return {at for start, length in spans for at in range(start, start + length)}


def _cut_at_steps(spans: Spans) -> Spans:
    """Return spans of operators, each cut where the step ends that it begins in."""
    return [(start, min(length, STEP_US - start % STEP_US)) for start, length in spans]


def _gloo(spans: Spans) -> list[Event]:
    return [span("gloo:all_reduce", start, length, tid=2) for start, length in spans]


def _ops(spans: Spans) -> list[Event]:
    return [op("aten::mm", start, length) for start, length in spans]


@pytest.mark.parametrize("with_steps", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_collectives_count_where_no_operator_runs(
    seed: int, with_steps: bool, tmp_path: Path
) -> None:
    """Two ranks; collectives last over the ends of steps, and run after the last."""
    draw = random.Random(seed)
    end = 3 * STEP_US
    of_operators = alone = window = 0
    for rank in (0, 1):
        operators = _cut_at_steps(_draw_spans(draw, end))
        calls = _draw_spans(draw, end + 50)
        steps = [step(k, k * STEP_US, STEP_US) for k in range(3) if with_steps]
        events = [*steps, *_ops(operators), *_gloo(calls)]
        write(tmp_path / f"rank{rank}.json", *events, **of_rank(rank, 2))
        computed = _paint(operators)
        called = _paint(calls)
        if with_steps:
            called &= set(range(end))
            window += end
        else:
            window += max(computed | called) + 1 - min(computed | called)
        of_operators += len(computed)
        alone += len(called - computed)
    tables = open_trace(tmp_path).tables
    spent = host_time(*(tables[name] for name in NEEDED))
    assert spent.window_ns == 1000 * window
    assert spent.phases[COLLECTIVES] == 1000 * alone
    assert spent.phases[REST] == 1000 * (window - of_operators - alone)
    assert sum(spent.phases.values()) == spent.window_ns
