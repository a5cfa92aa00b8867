"""Prices of one recording on many GPUs: arithmetic, probabilities, what files may hold."""

import json
import math
from typing import Any

import pytest

from htk.faces.cli import main
from htk.physics.hardware import load_catalogue

PRICED = ("--price", "a100-80gb=1.5", "--price", "h100=2..3", "--gpu", "a100-80gb", "--gpu", "h100")


def _rows(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], Any]:
    assert main.run_command_line(["prices", "sample", *words, "--format", "json"]) == 0, (
        capsys.readouterr().err
    )
    answer = json.loads(capsys.readouterr().out)
    return {row["gpu"]: row for row in answer["rows"]}, answer["coverage"]


def test_a_token_costs_the_time_of_its_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    rows, facts = _rows(capsys, *PRICED)
    assert facts["recorded_gpu"] == facts["reference"] == "a100-80gb"
    for row in rows.values():
        per_gpu = row["tokens_per_s_per_gpu"]
        cost = row["price_per_hour"] / 3600 / per_gpu * 1e6
        assert row["cost_per_million_tokens"] == pytest.approx(cost)
    assert rows["h100"]["price_per_hour"] == pytest.approx(math.sqrt(6))  # 2 to 3, by factors
    step = rows["a100-80gb"]["step_time_ns"] / rows["h100"]["step_time_ns"]
    assert rows["h100"]["break_even_price"] == pytest.approx(1.5 * step, rel=1e-6)
    assert rows["a100-80gb"]["break_even_price"] == pytest.approx(1.5)
    assert 0.5 < rows["h100"]["p_cheapest"] < 1
    assert sum(row["p_cheapest"] for row in rows.values()) == pytest.approx(1)


def test_at_the_break_even_price_both_cost_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = _rows(capsys, *PRICED)
    even = rows["h100"]["break_even_price"]
    words = ("--price", "a100-80gb=1.5", "--price", f"h100={even}", "--gpu", "h100",
             "--gpu", "a100-80gb")  # fmt: skip
    again, _ = _rows(capsys, *words)
    costs = [row["cost_per_million_tokens"] for row in again.values()]
    assert costs[0] == pytest.approx(costs[1], rel=1e-4)
    assert again["h100"]["p_cheapest"] == pytest.approx(0.5, abs=0.05)


def test_a_range_of_prices_widens_cost_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = _rows(capsys, *PRICED)
    exact, _ = _rows(capsys, "--price", "h100=2.449489743", "--gpu", "h100")

    def width(row: dict[str, Any], name: str) -> float:
        return math.log(row[f"{name}_hi90"] / row[f"{name}_lo90"]) / 2

    wide, narrow = (width(r["h100"], "cost_per_million_tokens") for r in (rows, exact))
    assert wide == pytest.approx(math.hypot(narrow, math.log(1.5) / 2), rel=1e-3)
    assert rows["h100"]["step_time_ns_hi90"] == exact["h100"]["step_time_ns_hi90"]


def test_without_prices_every_gpu_is_there_by_speed(capsys: pytest.CaptureFixture[str]) -> None:
    rows, facts = _rows(capsys)
    able = {name for name, entry in load_catalogue().items() if entry.has("bf16")}  # as recorded
    assert set(rows) == able and facts["reference"] is None
    steps = [row["step_time_ns"] for row in rows.values()]
    assert steps == sorted(steps)
    assert all(row["cost_per_million_tokens"] is None for row in rows.values())
    assert all(row["break_even_price"] is None for row in rows.values())


def test_a_power_cap_saves_energy_and_slows_products_within_bounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    free, _ = _rows(capsys, "--gpu", "a100-80gb", "--gpu", "h100")
    capped, _ = _rows(capsys, "--gpu", "a100-80gb", "--gpu", "h100", "--power-cap", "0.7")
    for name, row in capped.items():
        slower = row["step_time_ns"] / free[name]["step_time_ns"]
        assert 1 < slower < 1 / 0.7
        assert row["energy_j_per_token"] == pytest.approx(
            0.7 * slower * free[name]["energy_j_per_token"], rel=1e-6
        )
        assert row["step_time_ns_hi90"] > free[name]["step_time_ns_hi90"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--price", "h100"), "a GPU and its value"), (("--price", "q9=2"), "no GPU"),
        (("--power-cap", "7"), "from 0.2 to 1"),
        (("--reference", "h100", "--gpu", "h100"), "give its price too"),
        (("--price", "h100=0"), "positive"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_command_line(["prices", "sample", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
