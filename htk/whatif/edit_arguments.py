"""How the values of what-ifs are written: 2x, 50%, 64, name=4."""

import re

from htk.base.errors import UsageError

_FACTOR = re.compile(r"^(\d+(?:\.\d+)?|\.\d+)x?$")


def parse_factor(value: str, what: str) -> float:
    """'2x' or '2'."""
    match = _FACTOR.match(value.strip())
    if not match or float(match[1]) <= 0:
        raise UsageError(f"{what} {value!r}: a positive factor such as 2x was expected")
    return float(match[1])


def parse_pairs(value: str, what: str, names: tuple[str, ...]) -> dict[str, str]:
    """'a=1,b=2x' by name."""
    values = {}
    for part in value.split(","):
        name, mark, text = part.partition("=")
        if not mark or name.strip() not in names:
            raise UsageError(f"{what} {part!r}: one of {', '.join(k + '=…' for k in names)}")
        if name.strip() in values:
            raise UsageError(f"{what} {part!r}: {name.strip()} is given twice")
        values[name.strip()] = text.strip()
    return values


def positive_integer(value: str, what: str) -> int:
    """'4'."""
    if not value.strip().isdigit() or int(value) < 1:
        raise UsageError(f"{what} {value!r}: a positive whole number was expected")
    return int(value)


def parse_ratio(value: str, now: float | None, what: str, how: str) -> float:
    """Return the ratio to what is now, of '2x' (that many times) or '64' (in place of it)."""
    if value.strip().endswith("x"):
        return parse_factor(value, what)
    if not now:
        raise UsageError(f"{what} {value!r}: {how}; give a factor such as 2x")
    return parse_factor(value, what) / now


def on_or_off(value: str, what: str) -> bool:
    """'on' or 'off'."""
    if value not in ("on", "off"):
        raise UsageError(f"{what} {value!r}: on or off")
    return value == "on"


def switched_on(value: str, what: str) -> None:
    if value != "on":
        raise UsageError(f"{what} {value!r}: it can only be on")


def multiply_value(value: str, times: float) -> str:
    """Return '4x' of '2x' and '128' of '64' for twice as much; of 'global=64' 'global=128'."""
    name, mark, number = value.rpartition("=")
    unit = "x" if number.endswith("x") else ""
    return f"{name}{mark}{parse_factor(number, name or 'value') * times:.12g}{unit}"
