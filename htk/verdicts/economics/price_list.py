"""Prices of a GPU-hour as the user gives them: on the command line, or in a small TOML file.

currency = "EUR"

[h100]
per_hour = [2.2, 3.0]   # or one number
watts = 1000            # of a GPU with its share of the node
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from htk.base.core.ranges import ValueRange, parse_value
from htk.base.core.user_toml import read_toml
from htk.base.errors import UsageError
from htk.physics.hardware import gpu

_KEYS = {"per_hour", "watts"}
_LONGEST = 20  # characters of a currency


@dataclass(frozen=True)
class GpuTerms:
    """What one GPU costs and draws; None: not given."""

    per_hour: ValueRange | None = None
    watts: float | None = None


@dataclass(frozen=True)
class PriceList:
    terms: Mapping[str, GpuTerms]
    currency: str | None = None

    def find_terms(self, name: str) -> GpuTerms:
        return self.terms.get(name, GpuTerms())


_LARGEST = 1e12  # of a price, or of watts


def price_list(
    path: Path | None, prices: Iterable[str] = (), watts: Iterable[str] = ()
) -> PriceList:
    """Return the prices of a file, with those of NAME=2.5 or NAME=2..3 in their place."""
    listed = PriceList({}) if path is None else _read_prices(path)
    terms = dict(listed.terms)
    for text in prices:
        name, value = _parse_pair(text, "--price")
        terms[name] = replace(
            terms.get(name, GpuTerms()), per_hour=_check_positive(parse_value(value), text)
        )
    for text in watts:
        name, value = _parse_pair(text, "--watts")
        power = _check_positive(parse_value(value), text)
        terms[name] = replace(terms.get(name, GpuTerms()), watts=power.middle)
    return PriceList(terms, listed.currency)


def _parse_pair(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{flag} {text!r}: a GPU and its value, e.g. h100=2.5")
    return gpu(name.strip()).name, value


def _check_positive(value: ValueRange, text: str) -> ValueRange:
    if not 0 < value.low <= value.high < _LARGEST:
        raise UsageError(f"{text!r}: a positive number was expected")
    return value


def _read_prices(path: Path) -> PriceList:
    entries = read_toml(path, "a list of prices")
    currency = entries.pop("currency", None)
    if currency is not None and (not isinstance(currency, str) or len(currency) > _LONGEST):
        raise UsageError(f"{path}: currency: a short text such as EUR was expected")
    return PriceList(
        {gpu(name).name: _read_terms(path, name, e) for name, e in entries.items()}, currency
    )


def _read_terms(path: Path, name: str, entry: Any) -> GpuTerms:
    if not isinstance(entry, dict) or set(entry) - _KEYS:
        raise UsageError(f"{path}: [{name}]: per_hour and watts were expected")
    price = None if "per_hour" not in entry else _read_range(path, name, entry["per_hour"])
    power = None if "watts" not in entry else _read_range(path, name, entry["watts"]).middle
    return GpuTerms(price, power)


def _read_range(path: Path, name: str, value: Any) -> ValueRange:
    ends = value if isinstance(value, list) else [value]
    numbers = [e for e in ends if isinstance(e, int | float) and not isinstance(e, bool)]
    numbers = [e for e in numbers if abs(e) < _LARGEST]
    if len(ends) not in (1, 2) or len(numbers) < len(ends) or ends[0] > ends[-1]:
        raise UsageError(f"{path}: [{name}]: a number or a range [2.2, 3.0] was expected")
    return _check_positive(ValueRange(float(ends[0]), float(ends[-1])), f"{path}: [{name}]")
