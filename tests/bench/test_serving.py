"""The scorecard of servers."""

import math
from pathlib import Path

import pytest

from bench.plans.score import doubt
from bench.serving.page import checked, misses, page, reach
from bench.serving.rows import published

ROOT = Path(__file__).parents[2]
ROWS = published()


def test_the_page_and_the_table_are_those_of_the_rows() -> None:
    missed = misses(ROWS)
    assert (ROOT / "docs/serving_scorecard.md").read_text(encoding="utf-8") == page(ROWS, missed)
    table = checked(missed, doubt(missed), reach(missed))
    assert (ROOT / "htk/serving/checked.toml").read_text(encoding="utf-8") == table


def test_rows_are_times_of_whole_batches_or_first_tokens() -> None:
    (first,) = [r for r in ROWS if r.value == 103.0]
    assert first.is_first and first.measured_ns == 103e6 and first.server.tensor_parallel == 4
    (total,) = [r for r in ROWS if r.value == 3963]  # tokens a second of each of two GPUs
    assert total.measured_ns == pytest.approx(1e9 * 512 * 2048 / (2 * 3963))
    (alone,) = [r for r in ROWS if r.value == 104.9]
    assert alone.measured_ns == pytest.approx(200e9 / 104.9)
    assert alone.error == pytest.approx(math.log(alone.planned_ns / alone.measured_ns))
    assert all(r.where.startswith("https://") for r in ROWS)


def test_one_row_would_read_weights_faster_than_memory_can() -> None:
    """As the page says of it."""
    (row,) = [r for r in ROWS if r.value == 801]
    iteration = row.measured_ns / row.load.generated
    read = row.server.weight_bytes / row.server.gpu.memory_gbps
    assert iteration == pytest.approx(20e6, rel=0.02) and read == pytest.approx(23e6, rel=0.03)
