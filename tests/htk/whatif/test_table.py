"""Answers as rows: changes, money, energy and failures by hand; what is not known is null."""

import json

import pytest

from htk.base.errors import UsageError
from htk.whatif.answer import Answer
from htk.whatif.label import RETURNS
from htk.whatif.table import Terms, build_answer_rows
from tests.htk.whatif.answers import answer


def test_money_energy_and_failures() -> None:
    # 1000 tokens/s on 4 GPUs at 3 an hour: 12 an hour for 3.6 million tokens.
    one = answer(1, tokens_per_s=1000.0, gpus=4.0, watts=500.0)
    terms = Terms(price=3.0, run_tokens=36e6)
    found = build_answer_rows([one], terms).to_pylist()[0]
    assert found["cost_per_million_tokens"] == pytest.approx(12 / 3.6)
    assert found["run_hours"] == pytest.approx(10.0)
    assert found["cost_per_run"] == pytest.approx(120.0)
    assert found["energy_j_per_token"] == pytest.approx(2.0)
    assert found["goodput_pct"] is None
    often = Terms(run_tokens=36e6, gpu_mtbf_s=100 * 3600.0, restart_s=600.0, checkpoint_s=60.0)
    worse = build_answer_rows([one], often).to_pylist()[0]
    assert worse["goodput_pct"] < 100
    assert worse["run_hours"] == pytest.approx(10.0 * 100 / worse["goodput_pct"])
    with pytest.raises(UsageError, match="--restart 10min"):
        build_answer_rows([one], Terms(gpu_mtbf_s=3600.0, checkpoint_s=60.0))


def test_without_tokens_or_price_nothing_is_made_up() -> None:
    found = build_answer_rows([answer(1)], Terms(price=3.0)).to_pylist()[0]
    assert found["cost_per_million_tokens"] is None
    assert found["energy_j_per_token"] is None


def test_changes_are_of_the_step_and_of_a_sample() -> None:
    """Four times the samples in 100 * 4^0.9 = 348 of 100: the step takes 248 % longer, a sample
    13 % less; in proportion it would be 400."""
    (row,) = build_answer_rows([answer(4)]).to_pylist()
    assert (row["measured_step_time_ns"], row["step_time_ns"]) == (100, 348)
    assert row["change_pct"] == pytest.approx(248)
    assert row["time_per_sample_change_pct"] == pytest.approx(-13)
    assert (row["naive_no_change_ns"], row["naive_linear_ns"]) == (100, 400)
    assert row["regret_pct"] == pytest.approx(max(row["step_time_ns_hi90"] / 4 - 100, 0))
    assert json.loads(row["sigma_by_source"])["replay"] == 1.0  # percent


def test_a_refused_answer_has_no_number() -> None:
    refused = Answer((), 100, "refused: no graph")
    (row,) = build_answer_rows([refused]).to_pylist()
    assert row["whatif"] == "nothing" and row["verdict"] == "refused: no graph"
    numbers = {f.name for f in RETURNS if f.name.endswith(("_ns", "_pct", "lo50", "hi90"))}
    numbers -= {"measured_step_time_ns"}
    assert len(numbers) > 8
    assert {row[name] for name in numbers} == {None}


def test_a_gpus_tokens_are_its_share() -> None:
    (row,) = build_answer_rows([answer(1, tokens_per_s=1000.0, gpus=8.0, tpot_ns=12.6)]).to_pylist()
    assert (row["tokens_per_s_per_gpu"], row["tpot_ns"]) == (125, 13)
    assert build_answer_rows([]).num_rows == 0
