"""The scorecard of servers."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench.plans.score import trait_variances
from bench.serving.given import describe_servers, read_rows, write_page
from bench.serving.page import checked, misses, page, reach
from bench.serving.rows import published, time_batch
from htk.planning.serving.iteration import IterationWork, ServerCompute
from htk.planning.serving.steady import Load, SteadyServer

ROOT = Path(__file__).parents[2]
GIVEN = ROOT.parent / "shared/truth/servers_given.csv.gz"
ROWS = published()


@pytest.mark.nightly  # every published row is planned
def test_the_page_and_the_table_are_those_of_the_rows() -> None:
    missed = misses(ROWS)
    assert (ROOT / "docs/serving_scorecard.md").read_text(encoding="utf-8") == page(ROWS, missed)
    table = checked(missed, trait_variances(missed), reach(missed))
    assert (ROOT / "htk/planning/serving/checked.toml").read_text(encoding="utf-8") == table


def test_rows_are_times_of_whole_batches_or_first_tokens() -> None:
    (first,) = [r for r in ROWS if r.value == 103.0]
    assert first.is_first and first.measured_ns == 103e6 and first.server.tensor_parallel == 4
    (total,) = [r for r in ROWS if r.value == 3963]  # tokens a second of each of two GPUs
    assert total.measured_ns == pytest.approx(1e9 * 512 * 2048 / (2 * 3963))
    (alone,) = [r for r in ROWS if r.value == 104.9]
    assert alone.measured_ns == pytest.approx(200e9 / 104.9)
    assert alone.error == pytest.approx(math.log(alone.planned_ns / alone.measured_ns))
    assert all(r.where.startswith("https://") for r in ROWS)


def test_a_loaded_server_answers_as_many_as_fit() -> None:
    (row,) = [r for r in ROWS if r.value == 3803]  # 30,000 requests of 128 + 128 to one H200
    steady = SteadyServer(row.server, row.load)
    assert row.kind == "loaded" and steady.most_requests < row.batch == 30_000
    rate = steady.answering(steady.most_requests).requests_per_s
    assert row.planned_ns == pytest.approx(30_000 / rate * 1e9)
    assert row.measured_ns == pytest.approx(30_000 * 128 / 3803 * 1e9)
    few = replace(row, batch=steady.most_requests)  # all fit: they begin and end together
    assert few.planned_ns == time_batch(steady, few.batch)[1]


def test_a_recorded_iteration_is_one_of_decoding() -> None:
    (row,) = [r for r in ROWS if r.kind == "iteration"]
    assert row.measured_ns == 10.45e6
    work = IterationWork(requests=32, context=1024)
    assert row.planned_ns == ServerCompute(row.server).iteration(work).total


def test_one_row_would_read_weights_faster_than_memory_can() -> None:
    """As the page says of it."""
    (row,) = [r for r in ROWS if r.value == 801]
    iteration = row.measured_ns / row.load.generated
    read = row.server.weight_bytes / row.server.gpu.memory_gbps
    assert iteration == pytest.approx(20e6, rel=0.02) and read == pytest.approx(23e6, rel=0.03)


@pytest.mark.skipif(not GIVEN.exists(), reason="no list of measured servers")
def test_the_page_of_measured_servers_is_of_their_file() -> None:
    rows = read_rows(GIVEN)
    assert (ROOT / "docs/measured_servers.md").read_text(encoding="utf-8") == write_page(rows)
    given = list(describe_servers(rows))
    assert len(given) == 1278 and len(rows) == 2253
    (row,) = [row for row in rows if row["id"] == "kimik2_5_b200_vllm_fp4_agg_8192x1024_c4_cfg636"]
    (server,) = describe_servers([row])
    assert server.requests == 4 and server.load == Load(8192, 1024)
    assert server.token_ns == 1e6 * float(row["silicon_tpot_ms"])
