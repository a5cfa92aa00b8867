"""Inputs that may be ranges, as users write them: 30s, 3min..10min, 2e5..3e5, 466/54d."""

import math
import re
from dataclasses import dataclass

from htk.base.errors import UsageError

_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|\.\d+)\s*([a-zA-Z%]*)\s*")
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class ValueRange:
    """A number, or all between two. Between positive ends each factor is equally likely."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        if self.low > 0:
            return math.sqrt(self.low) * math.sqrt(self.high)
        return (self.low + self.high) / 2

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    def times(self, factor: float) -> "ValueRange":
        return ValueRange(self.low * factor, self.high * factor)

    def quantile(self, share: float) -> float:
        """Return the value below which such a share lies."""
        if self.is_exact:
            return self.low
        if self.low > 0:
            return self.low * math.exp(share * math.log(self.high / self.low))
        return self.low + (self.high - self.low) * share


def take_exact_value(value: ValueRange, flag: str, text: str) -> float:
    """Return the one number that an option holds; a range is refused."""
    if not value.is_exact:
        raise UsageError(f"{flag} {text!r}: one value was expected, no range")
    return value.low


def parse_seconds(text: str) -> ValueRange:
    """Return a duration or a range of them, in seconds; a unit is needed."""
    return _parse_range(text, _SECONDS, "a duration such as 90s, 5min or 3min..10min was expected")


def parse_value(text: str) -> ValueRange:
    """Return a number or a range of them; k, M, B and T stand for 1e3 to 1e12."""
    return _parse_range(text, _SCALES, "a number such as 400, 15T or 350..420 was expected")


def parse_count_over_time(text: str) -> tuple[int, float]:
    """Return a count and the seconds it was counted in: 466/54d."""
    count, slash, time = text.partition("/")
    if not slash or not count.strip().isdecimal() or len(count) > 12:
        raise UsageError(f"{text!r}: a count over a time such as 466/54d was expected")
    seconds = parse_seconds(time)
    if not seconds.is_exact or seconds.low <= 0:
        raise UsageError(f"{text!r}: one positive time was expected after the stroke")
    return int(count), seconds.low


def _parse_range(text: str, scales: dict[str, float], expected: str) -> ValueRange:
    low, dots, high = text.partition("..")
    if dots and (last := _AMOUNT.fullmatch(high)) and (first := _AMOUNT.fullmatch(low)):
        low = low if first[2] else f"{first[1]}{last[2]}"  # 3..10min
    ends = [_parse_amount(end, scales, text, expected) for end in ((low, high) if dots else (low,))]
    if ends[-1] < ends[0]:
        raise UsageError(f"{text!r} runs backwards; write the smaller end first")
    return ValueRange(ends[0], ends[-1])


def _parse_amount(text: str, scales: dict[str, float], written: str, expected: str) -> float:
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2] not in scales:
        raise UsageError(f"{written!r}: {expected}")
    amount = float(match[1]) * scales[match[2]]
    if not math.isfinite(amount):
        raise UsageError(f"{written!r}: too large; {expected}")
    return amount
