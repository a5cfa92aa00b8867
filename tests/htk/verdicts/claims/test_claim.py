"""`htk claim`: words, numbers and recordings together."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from htk.base.errors import UsageError
from htk.faces.cli import main
from htk.faces.cli.commands.claim import cluster_of
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job


def _answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, dict[str, Any]]:
    assert main.run_command_line(["claim", *words, "--format", "json"]) == 0, (
        capsys.readouterr().err
    )
    answer = json.loads(capsys.readouterr().out)
    return answer["coverage"], {row["check"]: row for row in answer["rows"]}


@pytest.fixture(scope="module")
def bound_by_links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nodes that wait for their network most of the time."""
    folder = tmp_path_factory.mktemp("links")
    job = Config(
        model="llama2-7b", layers=4, hidden=1024, heads=8, kv_heads=8, ffn=2816, vocab=4000,
        nodes=2, gpus_per_node=2, strategy="full_shard", micro_batch=2, seq=256, steps=4, seed=5,
        inter_gbps=2.0, stacks=True,
    )  # fmt: skip
    simulate_job(check_config(job), folder)
    (folder / "truth.json").unlink()
    return folder


def test_a_fused_norm_does_not_speed_up_a_step_that_waits_for_its_network(
    bound_by_links: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, rows = _answer(capsys, "1.594x by RMSNorm", "--trace", str(bound_by_links))
    assert facts["verdict"] == "impossible" and "htk diff" in facts["decided_by"]
    assert "larger batch" in facts["otherwise"]
    assert "needs 37 % of it to go" in rows["Amdahl"]["reason"]


def test_what_holds_most_of_the_step_may_bring_as_much(
    bound_by_links: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, rows = _answer(capsys, "1.2x by communication", "--trace", str(bound_by_links))
    assert facts["verdict"] == "plausible" and rows["Amdahl"]["use_pct"] < 60


def test_a_small_speedup_of_a_part_that_holds_it_needs_a_factor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The sample's matrix products: the step without them bounds what faster ones bring."""
    facts, rows = _answer(capsys, "1.1x by gemm", "--trace", "sample")
    assert facts["verdict"] == "plausible" and "times as fast" in rows["Amdahl"]["reason"]
    facts, _ = _answer(capsys, "9x by gemm", "--trace", "sample")
    assert facts["verdict"] == "impossible"


def test_a_part_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["claim", "2x by frobnication", "--trace", "sample"]) == 2
    error = capsys.readouterr().err
    assert "nothing of the step is named like 'frobnication'" in error and error.count("\n") == 1


def test_without_a_recording_the_share_it_needs_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts, rows = _answer(capsys, "1.594x by RMSNorm")
    assert facts["verdict"] == "needs" and "more than 37 %" in rows["Amdahl"]["reason"]


def test_a_published_utilisation_and_its_wording(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "llama2-13b", "--gpus", "64xA100", "--mfu", "70.5")
    facts, rows = _answer(capsys, "MFU with checkpointing", *words)
    assert facts["verdict"] == "plausible" and rows["MFU and HFU"]["verdict"] == "confused"
    assert rows["arithmetic"]["use_pct"] == pytest.approx(70, abs=1.5)


def test_a_reading_without_any_bound_has_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    facts, rows = _answer(capsys, "FSDP with buckets of 25 MB")
    assert facts["verdict"] is None and list(rows) == ["buckets of DDP"]


def test_the_text_begins_with_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["claim", "--gpus", "RTX 4090", "--tflops", "156"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("questioned") and "to decide: " in text


@pytest.mark.parametrize(
    ("text", "count", "name"),
    [("64xA100", 64, "a100-80gb"), ("h100", 1, "h100"), ("8 x RTX 4090", 8, "rtx-4090"),
     ("16×H200", 16, "h200"), ("4xa100-40gb-pcie", 4, "a100-40gb-pcie")],
)  # fmt: skip
def test_clusters_are_read(text: str, count: int, name: str) -> None:
    gpus, kind = cluster_of(text)
    assert (gpus, kind.name) == (count, name)


@pytest.mark.parametrize("text", ["", "64x", "64xQ9", "x", "8xA100; rm"])
def test_what_is_no_cluster_is_an_error(text: str) -> None:
    with pytest.raises(UsageError):
        cluster_of(text)


@pytest.mark.parametrize(
    "words",
    [("--mfu", "40"), ("--gpus", "8xH100", "--mfu", "4..5"), ("--gpus", "8xH100"), (),
     ("words alone", "--trace", "sample"), ("--gpus", "8xH100", "--mfu", "x"),
     ("--gpus", "8xH100", "--mfu", "40", "--precision", "int3")],
)  # fmt: skip
def test_what_is_no_claim_is_one_line(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_command_line(["claim", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_endless_speedup_needs_all_of_the_step() -> None:
    from htk.whatif.amdahl import needed_share

    assert needed_share(math.inf) == 1
