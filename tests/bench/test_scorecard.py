"""The scorecard: its sums by hand, what a predictor may see, and a fast part of it as a limit."""

import gzip
import subprocess
import sys
import tomllib
from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path

import numpy as np
import pytest

from bench import scorecard
from bench.scorecard.intervals import Learned, table
from bench.scorecard.jobs import Job, step_ns, write
from bench.scorecard.measured import calibrated, two_recordings
from bench.scorecard.memory import BINS, classified, reliability
from bench.scorecard.page import by_chance, page
from bench.scorecard.pieces import in_pieces
from bench.scorecard.rows import batches, load, pairs
from bench.scorecard.score import Prediction, by_kind, summary
from bench.scorecard.simulated import (
    CASES,
    faster_links,
    from_full_shard,
    from_host_bound,
    from_pieces,
    from_small_steps,
    hastened,
)
from htk.recording.simulate.instructions import Do
from htk.recording.simulate.program import build_program
from htk.whatif.calibration import state_sigma

# Percent of the step that a prediction of the small cluster below may be off: what it is off now,
# rounded up, and two more.
LIMITS = {
    "batch": 3.0,
    "sharding": 3.0,
    "batch and sharding": 4.0,
    "world": 3.0,
    "network": 4.0,
    "replace": 4.0,
    "host": 3.0,
    "checkpointing": 4.0,
    "no_skew": 3.0,
    "overlap": 4.0,
}
FACTS = Path(scorecard.__file__).parent / "facts"
SMALL = Job(model="gpt3-126m", layers=2, seq=256, gpus_per_node=2, micro_batch=2, steps=3)


def row(group: str, said: float, came: float = 100.0, sigma: float = 0.1) -> Prediction:
    base, edits = 80, ("batch",)
    return Prediction("trace", "batch", "", group, "trusted", base, came, 160, said, sigma, edits)


def test_sums_by_hand() -> None:
    found = summary([row("a", 110), row("b", 95), row("c", 101)])
    assert found["median_pct"] == pytest.approx(5)
    assert found["mean_pct"] == pytest.approx((10 + 5 + 1) / 3)
    assert found["no_change_median_pct"] == pytest.approx(20)
    assert found["linear_median_pct"] == pytest.approx(60)
    assert found["wrong_way"] == 0
    assert summary([row("a", 70)])["wrong_way"] == 1  # 80 became 100


def test_the_error_is_logarithmic() -> None:
    assert row("a", 110).error == pytest.approx(log(1.1))
    assert row("a", 110).score == pytest.approx(log(1.1) / sqrt(0.1**2 + 0.02**2))


def measured(source: str, said: float, edit: str = "batch") -> Prediction:
    """A row of a source; `said` in units of the uncertainty it states."""
    sigma = state_sigma(0.1, (edit,))
    made = row(source, 100 * exp(said * sigma))
    return replace(made, road="described", source=source, edits=(edit,))


def test_an_interval_is_judged_without_its_source() -> None:
    good = [measured("a", 0.1 * k) for k in range(1, 11)]
    bad = [measured("b", 2.0 + 0.1 * k) for k in range(1, 11)]
    learned = Learned([*good, *bad])
    assert str(learned.held(good)) == "10 of 10"
    assert str(learned.held(bad)) == "0 of 10"
    # What is shipped is taught by all twenty, once as themselves and once as all kinds.
    assert learned.factors("batch")[1] == pytest.approx(2.8)


def test_simulated_rows_teach_nothing_where_rows_are_measured() -> None:
    rows = [measured("a", 0.1 * k) for k in range(1, 11)]
    wild = [replace(measured("seed", 9.0), road="trace", group="1") for _ in range(50)]
    assert Learned([*rows, *wild]).factors("batch") == Learned(rows).factors("batch")
    other = [replace(r, edits=("host",)) for r in wild]
    assert Learned([*rows, *other]).factors("host")[1] == pytest.approx(9.0)
    assert str(Learned([*rows, *other]).held(other)) == "0 of 50"  # without their own cluster


def test_widths_against_the_smallest_that_would_hold() -> None:
    rows = [measured(source, 0.1 * k) for source in "ab" for k in range(1, 11)]
    wide, least = Learned(rows).widths()
    sigma = state_sigma(0.1, ("batch",))
    assert least == pytest.approx(100 * (exp(0.9 * sigma) - 1))  # the 18th of 20
    assert wide == pytest.approx(least)  # one source teaches the other the same


def test_the_range_of_chance_by_hand() -> None:
    # Of ten at 0.9: P(≤ 6) = 0.0128, P(≤ 7) = 0.0702; all ten come with 0.35.
    assert by_chance(10) == (7, 10)
    assert by_chance(0) == (0, 0)


def test_intervals_are_learned_from_single_edits() -> None:
    one = measured("a", 1.0)
    both = replace(one, kind="batch and sharding", edits=("batch", "sharding"))
    refused = replace(one, predicted_ns=None)
    learned = Learned([one, both, refused, replace(one, road="trace")])
    assert learned.edits == ["batch"]
    assert len(learned.of("batch", "described")) == len(learned.of("batch", "trace")) == 1


def shares_layers() -> Job:
    return replace(SMALL, gpus_per_node=4, tensor_parallel=4, micro_batch=8)


def test_all_is_computed_and_sent_in_pieces() -> None:
    job = shares_layers()
    whole, cut = build_program(job), in_pieces(job, 4)(build_program(job))
    sent, in_parts = (
        [a.collective for do, what in zip(p.do, p.what, strict=True) if do is Do.LAUNCH
         for a in what[:1] if a.collective and a.collective.group == "tensor"]
        for p in (whole, cut)
    )  # fmt: skip
    assert len(sent) == 8  # two a layer, each way
    assert len(in_parts) == 4 * len(sent)
    assert sum(c.wire for c in in_parts) == pytest.approx(sum(c.wire for c in sent))
    flops = [
        sum(what[0].flops for do, what in zip(p.do, p.what, strict=True) if do is Do.LAUNCH)
        for p in (whole, cut)
    ]
    assert flops[0] == pytest.approx(flops[1])


def test_one_piece_takes_as_long_as_the_whole() -> None:
    job = shares_layers()
    assert step_ns(job, in_pieces(job, 1)) == pytest.approx(step_ns(job), rel=0.02)


def test_pieces_are_predicted_and_simulated() -> None:
    job = replace(SMALL, gpus_per_node=4, micro_batch=8, hidden=1536, seq=1024)
    found = list(from_pieces(job.drawn(2)))
    assert [r.edits for r in found] == [("split",)] * 2
    errors = [r.error for r in found]
    assert all(error is not None and abs(error) < 0.04 for error in errors), errors


def test_hastened_compute_takes_less(tmp_path: Path) -> None:
    plain = build_program(SMALL)
    quick = hastened(plain)
    before = [w[0].ns for w in plain.what if isinstance(w, tuple) and hasattr(w[0], "kind")]
    after = [w[0].ns for w in quick.what if isinstance(w, tuple) and hasattr(w[0], "kind")]
    assert sum(after) < sum(before) and len(after) == len(before)
    assert step_ns(SMALL, hastened) < step_ns(SMALL)


def test_a_cluster_is_drawn_from_its_seed() -> None:
    one, two = SMALL.drawn(1), SMALL.drawn(2)
    assert one == SMALL.drawn(1)
    assert one.compute != two.compute
    assert 0.85 <= one.compute <= 1.15
    assert 0.7 <= one.device.memory_gbps / SMALL.device.memory_gbps / one.bandwidth <= 1.3


def test_the_predictor_sees_trace_files_alone(tmp_path: Path) -> None:
    """Neither sidecar nor simulator: only what a profiler writes."""
    job = SMALL.drawn(1)
    write(job, tmp_path)
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == ["rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz"]
    text = gzip.decompress((tmp_path / files[0]).read_bytes()).decode()
    hidden = (job.compute, job.bandwidth, job.intra_gbps, job.device.achievable_bf16_tflops)
    assert not [number for number in hidden if str(number)[:8] in text]
    code = (
        "import sys; sys.modules['htk.recording.simulate'] = None; from htk.__main__ import main; "
        f"sys.argv = ['htk', 'whatif', {str(tmp_path)!r}, '--batch', '4', '--format', 'json']; "
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"verdict": "' in done.stdout


def test_simulated_jobs_are_predicted_within_their_limits() -> None:
    """The part of the scorecard that runs with the tests: one small cluster, a case of a kind."""
    job = replace(
        Job(model="llama2-7b", layers=3, seq=512, nodes=2, gpus_per_node=2, micro_batch=8),
        steps=4,
    ).drawn(1)
    cases = [next(c for c in CASES if c.kind == kind) for kind in LIMITS if kind != "network"]
    found = by_kind(from_full_shard(job, [*cases, faster_links(job)]))
    assert set(found) == set(LIMITS)
    for kind, rows in found.items():
        sums = summary(rows)
        assert sums["refused"] == sums["wrong_way"] == 0, kind
        assert max(100 * abs(r.error or 0.0) for r in rows) <= LIMITS[kind], kind


def test_what_the_host_costs_is_predicted_within_limits() -> None:
    """A step that its host bounds, without waits, launches, or half of its time."""
    job = Job(model="gpt3-126m", seq=512, layers=4, gpus_per_node=2, steps=4).drawn(1)
    found = by_kind(from_host_bound(job))
    assert set(found) == {"host", "graphs", "remove_syncs"}
    for kind, (row,) in found.items():
        assert row.truth_ns < 0.9 * row.base_ns, kind
        assert abs(row.error or 1.0) < 0.06, kind


@pytest.mark.nightly
def test_buckets_prefetching_and_precision_are_predicted_within_limits() -> None:
    job = replace(
        Job(model="llama2-7b", layers=3, seq=512, nodes=2, gpus_per_node=2), steps=4
    ).drawn(1)
    found = by_kind(from_small_steps(job))
    limits = {"bucket": 0.12, "precision": 0.25, "prefetch_depth": 0.15}
    assert set(found) == set(limits)
    for kind, rows in found.items():
        assert max(abs(r.error or 1.0) for r in rows) < limits[kind], kind


@pytest.mark.nightly
def test_two_recordings_tell_a_larger_global_batch() -> None:
    """BLOOM at 512 and 1024 samples: 1536 and 2048 within 2 %."""
    found = list(two_recordings(batches(FACTS)))
    assert len(found) == 2
    assert all(abs(r.error or 1.0) < 0.02 for r in found)


def test_whether_layouts_run_out_is_told_by_what_other_sources_taught(shared: Path) -> None:
    fits = classified(shared / "truth" / "whatif")
    assert fits.n > 400
    assert fits.right_pct >= 95
    assert min(fits.missed, fits.false_alarms) > 0  # it could be wrong


def test_peaks_of_sources_left_out(shared: Path) -> None:
    fits = classified(shared / "truth" / "whatif")
    off = {source: median for source, _, median, _ in fits.peaks}
    assert off["BLOOM"] < 6
    assert off["torchtitan"] < 12


def test_what_is_called_10_percent_fails_one_time_in_10(shared: Path) -> None:
    """Layouts: each bin within the range of chance, of sources that taught nothing. The sizes that
    a measured peak is held to share one error, so that they are no independent draws."""
    fits = classified(shared / "truth" / "whatif")
    assert {b.low for b in fits.outcomes} == set(BINS[:-1])
    for answer in fits.outcomes:
        low, high = by_chance(answer.n, answer.stated_pct / 100)
        assert low <= round(answer.n * answer.failed_pct / 100) <= high, answer
    for answer in fits.sizes:
        assert -15 < answer.failed_pct - answer.stated_pct < 8, answer


def test_reliability_counts_answers_by_what_they_stated() -> None:
    stated = np.array([0.01, 0.1, 0.1, 0.1, 0.1, 0.97])
    answers = reliability(stated, np.array([0, 1, 0, 0, 0, 1], bool))
    assert [(b.low, b.n, b.failed_pct) for b in answers] == [
        (0.0, 1, 0.0),
        (0.05, 4, 25.0),
        (0.95, 1, 100.0),
    ]
    assert answers[1].stated_pct == pytest.approx(10)


def test_a_stand_in_takes_as_long_as_what_was_measured() -> None:
    job = calibrated(SMALL, 1.2 * step_ns(SMALL))
    assert step_ns(job) == pytest.approx(1.2 * step_ns(SMALL), rel=0.005)


def test_pairs_differ_in_one_kind_of_thing() -> None:
    found = list(pairs(load(FACTS)))
    kinds = {p.kind for p in found}
    assert {"batch", "batch and length", "world", "checkpointing", "fused norms"} <= kinds
    one = next(p for p in found if p.kind == "checkpointing")
    assert one.start.job.micro_batch == one.end.job.micro_batch
    assert one.start.job.checkpointing != one.end.job.checkpointing
    assert all(p.start.source == p.end.source for p in found)


def test_one_node_is_told_that_others_would_be_replicas(shared: Path) -> None:
    rows = [r for r in load(shared / "truth" / "whatif") if "MaxText" in r.family]
    asked = {(p.start.job.nodes, p.end.job.nodes): p.edits for p in pairs(rows)}
    assert asked[1, 4] == (("world", "32"), ("sharding", "hybrid_shard:8"))
    assert asked[4, 1] == (("world", "8"),)
    assert asked[2, 4] == (("world", "32"),)


def test_the_page_tells_every_kind() -> None:
    rows = [row("a", 110), row("b", 105), replace(row("c", 101), road="described", kind="world")]
    text = page(rows, None, "A sample.")
    assert "| batch | 2 | 0 | 7.5 |" in text
    assert "| world | 1 |" in text
    assert "Calculon" in text
    intervals = tomllib.loads(table(Learned(rows)))
    # The one measured row, 1 % off, teaches all; those simulated are 5 and 10 % off.
    assert intervals["batch"]["simulated"] == {"held": 0, "n": 2}
    assert intervals["batch"]["measured"] == {"held": 1, "n": 1}
    assert intervals["pooled"]["most"] > 0
