"""Prices of GPUs, from a file and from the command line."""

from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.verdicts.economics.price_list import price_list


def test_prices_come_from_a_file_and_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "EUR"\n[h100]\nper_hour = [2, 3]\nwatts = 1000\n[l4]\nwatts = 72\n')
    listed = price_list(path, ["h100=2.5"], ["l4=100"])
    assert listed.currency == "EUR"
    price = listed.find_terms("h100").per_hour
    assert price is not None and price.is_exact and listed.find_terms("h100").watts == 1000
    assert listed.find_terms("l4").watts == 100 and listed.find_terms("l4").per_hour is None
    assert listed.find_terms("h200").per_hour is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[h100]\nper_hour = -2", "positive"), ("[h100]\nper_hour = [3, 2]", "range"),
        ("[h100]\ncost = 2", "per_hour and watts"), ("[q9]\nper_hour = 2", "no GPU"),
        ("h100 = 2", "per_hour and watts"), ("[h100", "not TOML"), ("currency = 3", "short text"),
        ("[h100]\nper_hour = true", "range"), ("[h100]\nper_hour = [1, 2, 3]", "range"),
        ("[h100]\nper_hour = inf", "a number or a range"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        price_list(path)
