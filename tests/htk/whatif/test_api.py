"""What-ifs from Python and the command line, on the sample."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import htk
from htk.base.errors import UsageError
from htk.faces.cli.main import htk as main
from htk.traces.trace.trace import Trace
from htk.whatif.api import WhatIf
from htk.whatif.label import RETURNS
from tests.kineto_file import kernel, launch, op, write


@pytest.fixture(scope="module")
def asked() -> WhatIf:
    return htk.whatif("sample")


def test_a_question_is_collected_and_answered(asked: WhatIf) -> None:
    row = asked.batch("2x").network(bandwidth=2).run().to_pylist()[0]
    assert row["whatif"] == "batch 2x, network bandwidth=2,latency=1"
    assert row["step_time_ns_lo90"] < row["step_time_ns_lo50"] < row["step_time_ns"]
    assert row["step_time_ns"] < row["step_time_ns_hi50"] < row["step_time_ns_hi90"]
    assert row["naive_linear_ns"] == 2 * row["measured_step_time_ns"]
    assert sum(json.loads(row["waterfall"]).values()) == (
        row["step_time_ns"] - row["measured_step_time_ns"]
    )
    assert set(json.loads(row["sigma_by_source"])) >= {"replay", "kernel", "network", "site"}
    assert row["tokens_per_s_per_gpu"] == pytest.approx(row["tokens_per_s"] / 2)


def test_every_column_is_filled_on_the_sample(asked: WhatIf) -> None:
    terms = {
        "price": 2.0,
        "run_tokens": 1e9,
        "gpu_mtbf_s": 3.6e6,
        "restart_s": 600.0,
        "checkpoint_s": 60.0,
    }
    table = asked.economy(**terms).sweep("batch", "1x", "256x").run().to_arrow()
    empty = [name for name in RETURNS.names if table[name].null_count == table.num_rows]
    of_servers = ["generated_tokens_per_s", "tpot_ns", "tpot_ns_hi90", "tpot_ns_lo90"]
    assert sorted(empty) == of_servers  # the sample serves nobody


def test_mfu_is_that_of_the_flops_of_the_step(asked: WhatIf) -> None:
    truth = json.loads((Path(htk.__file__).parent / "traces/sample" / "truth.json").read_text())
    row = asked.change("overlap", "today").run().to_pylist()[0]
    rate = truth["model_flops_per_rank_and_step"] / (row["step_time_ns"] * 1e-9)
    assert row["mfu_pct"] == pytest.approx(100 * rate / 312e12, rel=0.02)  # of an A100
    tokens = 2 * 2 * 512  # ranks, micro-batch, length
    assert row["tokens_per_s"] == pytest.approx(tokens / (row["step_time_ns"] * 1e-9))


def test_bounds_come_without_an_edit_and_advice_on_request(asked: WhatIf) -> None:
    steps = [a.step_ns for a in asked.answers()]
    assert steps == sorted(steps, key=lambda ns: ns or 0)
    advice = asked.recommend().answers()
    gains = [a.gain_over_sigma or 0.0 for a in advice]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 0
    assert "fix_rank" in [a.edits[0][0] for a in advice]  # one rank of the sample is slow


def test_the_ledger_tells_what_a_strategy_sends(asked: WhatIf) -> None:
    found = asked.sharding("ddp").traffic().to_pylist()
    recorded = {r["type"]: r for r in found if r["variant"] == "recorded"}
    predicted = {r["type"]: r for r in found if r["variant"] == "predicted"}
    assert set(recorded) == {"all_gather", "reduce_scatter"}
    assert set(predicted) == {"all_reduce"}
    # of two ranks: half of the gradients scattered, against 2(N-1)/N of them
    assert predicted["all_reduce"]["wire_bytes_mean"] == pytest.approx(
        2 * recorded["reduce_scatter"]["wire_bytes_mean"]
    )


def test_the_predicted_step_opens_and_takes_as_long_as_said(asked: WhatIf, tmp_path: Path) -> None:
    question = asked.change("fix_rank", "all")
    files = question.write(tmp_path / "out")
    assert len(files) == 2
    written = htk.open(tmp_path / "out")
    recorded = htk.open("sample")
    period = max(r["gpu_period_ns"] for r in written.step_times().to_pylist())
    assert period == pytest.approx(question.answers()[0].step_ns, rel=0.02)
    launched = {n: t.tables["kernels"].num_rows for n, t in (("new", written), ("old", recorded))}
    assert launched["new"] * 4 == launched["old"]  # one of four steps
    assert set(written.tables["kernel_links"]["launch_by"].to_pylist()) == {"correlation"}


def test_what_an_edit_removes_is_not_in_the_predicted_step(asked: WhatIf, tmp_path: Path) -> None:
    asked.sharding("shard_grad_op").write(tmp_path / "out")
    before = asked.trace.sel(steps=[asked.stage.graph.step or 0])
    assert gathers(htk.open(tmp_path / "out")) < gathers(before)


def gathers(trace: Trace) -> int:
    return sum("AllGather" in name for name in trace.tables["kernels"]["name"].to_pylist())


def test_the_command_prints_for_people_and_machines() -> None:
    said = CliRunner().invoke(main, ["whatif", "sample", "--batch", "2x"]).output
    for words in (
        "replay of the unedited step: trusted",
        "change of",
        "uncertainty, one standard deviation",
        "assumes:",
    ):
        assert words in said
    given = ["whatif", "sample", "--sweep", "batch=1x,2x", "--format", "json"]
    rows = json.loads(CliRunner().invoke(main, given).output)["rows"]
    assert [r["whatif"] for r in rows] == ["batch 1x", "batch 2x"]
    ledger = CliRunner().invoke(main, ["whatif", "sample", "--ledger"]).output
    assert "reduce_scatter" in ledger


def test_what_is_won_at_most_is_said_to_be_that() -> None:
    said = CliRunner().invoke(main, ["whatif", "sample"]).output
    assert "what could be won at most, each cause alone:" in said
    assert "-0.0" not in said and "e-0" not in said
    assert "another step 0 % off" in said


def test_without_a_whole_step_beside_it_the_reason_stands_alone() -> None:
    said = CliRunner().invoke(main, ["whatif", "sample", "--steps", "11", "--batch", "2x"]).output
    assert "unedited step: indicative: only one whole step was recorded" in said
    assert said.count("indicative") == 1


def test_a_sweep_is_not_written(tmp_path: Path) -> None:
    given = ["whatif", "sample", "--sweep", "batch=1x,2x", "--write", str(tmp_path / "out")]
    found = CliRunner().invoke(main, given)
    assert isinstance(found.exception, UsageError | SystemExit)
    assert not (tmp_path / "out").exists()


def test_an_answer_once_refused_writes_nothing(tmp_path: Path) -> None:
    unlinked = [kernel("gemm", 1, 3, 90), kernel("add", 4, 2, 2), launch(2, 3)]
    few = htk.open(write(tmp_path / "t.json", op("aten::mm", 1, 3), *unlinked))
    with pytest.raises(UsageError, match="nothing to write"):
        htk.whatif(few).change("host", "2x").write(tmp_path / "out")


def test_a_session_asks_by_itself() -> None:
    assert htk.open("sample").whatif().change("host", "2x").answers()[0].step_ns


def test_folders_with_the_same_ranks_are_recordings_at_several_batches(tmp_path: Path) -> None:
    sample = Path(htk.__file__).parent / "traces/sample"
    for folder, ranks in (("a", (0,)), ("b", (1,)), ("again", (0,))):
        (tmp_path / folder).mkdir()
        for rank in ranks:
            name = f"rank{rank}.pt.trace.json.gz"
            (tmp_path / folder / name).write_bytes((sample / name).read_bytes())
    parts = [str(tmp_path / "a"), str(tmp_path / "b")]
    one = CliRunner().invoke(main, ["whatif", *parts, "--host", "2x"])
    assert "(2 ranks recorded)" in one.output
    runs = [str(tmp_path / "a"), str(tmp_path / "again")]
    two = CliRunner().invoke(main, ["whatif", *runs, "--batch", "4x"])
    assert "same batch" in str(two.exception)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--world", "0"], "world '0': a positive whole number was expected"),
        (["--batch", "2x", "--batch", "0.5x"], "batch is given 2 times"),
        (["--sharding", "SOME_SHARD"], "one of ddp, shard_grad_op, full_shard"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(given: list[str], message: str) -> None:
    found = CliRunner().invoke(main, ["whatif", "sample", *given])
    assert isinstance(found.exception, UsageError)
    assert message in str(found.exception)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("FULL_SHARD", "full_shard"),
        ("NO_SHARD", "ddp"),
        ("Shard_Grad_Op", "shard_grad_op"),
        ("HYBRID_SHARD", "hybrid_shard"),
        ("reshard_after_forward=True", "full_shard"),
        ("reshard_after_forward=False", "shard_grad_op"),
    ],
)
def test_pytorchs_names_of_strategies(asked: WhatIf, name: str, ours: str) -> None:
    assert asked.sharding(name).run().to_pylist() == asked.sharding(ours).run().to_pylist()


def test_shapes_come_before_a_batch_that_they_contradict(asked: WhatIf) -> None:
    sample = Path(htk.__file__).parent / "traces/sample"
    with pytest.raises(UsageError, match="its shapes say 2 against 2; leave the factor out"):
        asked.calibrate_with(str(sample), 2.0).batch("4x").run()
