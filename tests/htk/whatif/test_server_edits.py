"""What-ifs of servers: tokens by hand, other batches as they were recorded, edits that say nothing.

`tests/recordings/decode` holds iterations of a small decoder on one H100, at four batches and
contexts, replayed from CUDA graphs in vLLM's ranges: what was measured is the truth.
"""

from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import UsageError
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from htk.whatif.api import WhatIf
from htk.whatif.text import show_whatif

DECODE = Path(__file__).parents[2] / "recordings/decode"
SIZES = ((16, 4096), (64, 1024), (64, 4096), (128, 4096))


def recorded(batch: int, context: int) -> WhatIf:
    folder = DECODE / f"batch_{batch}_context_{context}"
    return WhatIf(open_trace([folder / "rank0.pt.trace.json.gz"]))


@pytest.fixture(scope="module")
def recordings() -> dict[tuple[int, int], WhatIf]:
    return {size: recorded(*size) for size in SIZES}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("other", SIZES)
def test_other_batches_and_contexts_take_as_long_as_recorded(
    recordings: dict[tuple[int, int], WhatIf], size: tuple[int, int], other: tuple[int, int]
) -> None:
    """Within 8 % up to four times as many tokens looked back on, beyond that within 12 %."""
    if size == other:
        pytest.skip("the same")
    start = recordings[size]
    (answer,) = start.change("serving", f"requests={other[0]},context={other[1]}").answers()
    assert answer.step_ns is not None
    truth = recordings[other].stage.step_ns
    far = max(size[0] / other[0], other[0] / size[0]) * max(size[1] / other[1], other[1] / size[1])
    assert answer.step_ns == pytest.approx(truth, rel=0.08 if far <= 4 else 0.12)
    _, _, low, high = answer.intervals
    assert low is not None and high is not None
    assert low <= truth <= high


def test_what_is_replayed_of_several_recordings_knows_no_other(
    recordings: dict[tuple[int, int], WhatIf],
) -> None:
    """Of four, that with the most GPU time: the others ran before it, and take no part."""
    alone = recordings[128, 4096]
    together = WhatIf(open_trace(sorted(DECODE.glob("*/rank0.pt.trace.json.gz"))))
    for edit, value in (("graphs", "on"), ("host", "2x"), ("serving", "requests=2x")):
        (first,), (second,) = (start.change(edit, value).answers() for start in (alone, together))
        assert second.step_ns == first.step_ns


def test_tokens_follow_the_iterations_and_each_edit() -> None:
    """8 iterations of 64 requests, a token each; of twice the requests twice as many."""
    start = recorded(64, 1024)
    row = start.change("host", "1x").run().to_pylist()[0]
    seconds = row["step_time_ns"] / 1e9
    assert row["tokens_per_s"] == pytest.approx(8 * 64 / seconds, rel=1e-6)
    assert row["generated_tokens_per_s"] == row["tokens_per_s"]
    assert row["tpot_ns"] == pytest.approx(row["step_time_ns"] / 8, abs=1)
    doubled = start.change("serving", "requests=2x").economy(price=3.6).run().to_pylist()[0]
    seconds = doubled["step_time_ns"] / 1e9
    assert doubled["tokens_per_s"] == pytest.approx(8 * 128 / seconds, rel=1e-6)
    assert doubled["cost_per_million_tokens"] == pytest.approx(
        3.6 / 3600 / doubled["tokens_per_s"] * 1e6, rel=1e-6
    )
    low, high = (doubled[f"tokens_per_s_{end}"] for end in ("lo90", "hi90"))
    assert low == pytest.approx(8 * 128e9 / doubled["step_time_ns_hi90"], rel=1e-6)
    assert high == pytest.approx(8 * 128e9 / doubled["step_time_ns_lo90"], rel=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("batch", "2x", "--serving requests=2x"),
        ("seq", "2x", "--serving context=2x"),
        ("tp", "2", "--serving model=NAME,tp=2"),
        ("world", "2", "--serving dp=2"),
        ("sharding", "ddp", "nothing of the kind"),
    ],
)
def test_edits_of_training_are_refused_with_what_to_ask_instead(
    name: str, value: str, instead: str
) -> None:
    with pytest.raises(UsageError, match=instead):
        recorded(64, 1024).change(name, value).answers()


def test_a_step_that_a_profiler_marks_counts_its_own_iterations(tmp_path: Path) -> None:
    """Two GPUs share a model, 16 requests, three marked steps of an iteration each."""
    server = Config(
        model="llama2-7b", layers=2, nodes=1, gpus_per_node=2, tensor_parallel=2, steps=3,
        strategy="ddp", decode_requests=16,
    )  # fmt: skip
    simulate_job(check_config(server), tmp_path)
    start = WhatIf(open_trace(tmp_path))
    assert start.stage.served is not None and start.stage.served.count == 1
    row = start.change("serving", "requests=2x").run().to_pylist()[0]
    assert row["tokens_per_s"] == pytest.approx(32e9 / row["step_time_ns"], rel=1e-6)
    assert row["tpot_ns"] == row["step_time_ns"]


def test_an_edit_of_what_was_recorded_changes_nothing() -> None:
    for value in ("requests=64", "context=1x,requests=1x"):
        (row,) = recorded(64, 1024).change("serving", value).run().to_pylist()
        assert row["change_pct"] == 0


def test_a_capture_alone_has_no_advice(shared: Path) -> None:
    folder = shared / "traces/tracelens/inference"
    for name in ("vllm_prefilldecode_piecewise", "sglang_decode"):
        capture = open_trace(folder / name / "capture_traces")
        assert not ask_trace(capture, "recommendations").to_pylist()
        with pytest.raises(UsageError, match="captures its graphs"):
            WhatIf(capture).recommend().answers()


def test_what_is_recommended_is_of_servers(capsys: pytest.CaptureFixture[str]) -> None:
    advice = recorded(16, 4096).recommend()
    show_whatif(advice.run(), "table", None)
    headings = next(t for t in capsys.readouterr().out.splitlines() if t.startswith("what if"))
    assert "time/token" in headings and "tokens/s" in headings
    answers = advice.answers()
    names = {answer.edits[0][0] for answer in answers}
    assert "batch" not in names
    assert names <= {"serving", "remove_syncs", "graphs", "hardware"}
    assert ("serving", "requests=2x") in {answer.edits[0] for answer in answers}
    own, other = (
        [a.tokens_per_s / a.gpus for a in answers if ("hardware" in a.names) == is_other]  # type: ignore[operator]
        for is_other in (False, True)
    )
    assert own == sorted(own, reverse=True) and other == sorted(other, reverse=True)
    assert (
        own and other and [a.names[0] for a in answers[-len(other) :]] == ["hardware"] * len(other)
    )


def test_folders_with_captures_are_answered_from_what_they_serve(shared: Path) -> None:
    """8,155 tokens of prompts and 37 given; 32 given. Times of the iterations alone."""
    folder = shared / "traces/tracelens/inference"
    for name, tokens, longest in (
        ("vllm_prefilldecode_piecewise", 8155 + 37, 160e6),
        ("sglang_decode", 32, 11e6),
    ):
        row = WhatIf(open_trace(folder / name)).change("remove_syncs").run().to_pylist()[0]
        assert row["measured_step_time_ns"] < longest
        seconds = row["step_time_ns"] / 1e9
        assert row["tokens_per_s"] == pytest.approx(tokens / seconds, rel=1e-6)


def test_what_is_modelled_to_a_twentieth_has_no_share_of_the_peak(shared: Path) -> None:
    """Of the iteration alone 96 % is in a graph whose capture was not opened."""
    path = shared / "traces/tracelens/inference/vllm_prefilldecode_piecewise"
    alone = WhatIf(open_trace(path / "graph_execution.json.gz")).change("remove_syncs")
    assert alone.run().to_pylist()[0]["mfu_pct"] is None
    whole = WhatIf(open_trace(path)).change("remove_syncs")
    assert 20 < whole.run().to_pylist()[0]["mfu_pct"] < 35


@pytest.mark.parametrize(
    ("edit", "value", "why"),
    [
        ("network", "bandwidth=2x", "no communication was recorded"),
        ("no_skew", "on", "no communication was recorded"),
        ("overlap", "perfect", "no communication was recorded"),
        ("workers", "2x", "a server has nothing of the kind"),
        ("no_data_wait", "on", "a server has nothing of the kind"),
        ("serving", "model=mixtral-8x7b,ep=8", "no products of experts were recorded"),
        ("serving", "dp=100", "less than one request"),
        ("serving", "requests=0.01x", "less than one request"),
        ("serving", "requests=2x,requests=3x", "requests is given twice"),
    ],
)
def test_an_edit_that_touches_nothing_recorded_is_refused(edit: str, value: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        recorded(16, 4096).change(edit, value).run()


def test_an_edit_of_training_is_not_written(
    recordings: dict[tuple[int, int], WhatIf], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="iterations of a server"):
        recordings[SIZES[0]].change("batch", "2x").write(tmp_path / "predicted")
    assert not (tmp_path / "predicted").exists()
