"""Edits of an edited job, as edits of the recorded one.

A factor multiplies what it finds; any other value takes its place.
"""

from collections.abc import Sequence

from htk.base.errors import UsageError
from htk.whatif.edit_arguments import multiply_value, parse_factor
from htk.whatif.edits import REPEATABLE

Edit = tuple[str, str]

_FACTORS = ("batch", "seq", "accumulation", "host", "workers", "gradients")
_ALWAYS = ("host", "workers", "gradients")  # with or without an x
_OF_PAIRS = ("network", "serving")


def composed_edits(first: Sequence[Edit], second: Sequence[Edit]) -> tuple[Edit, ...]:
    """Return the edits that make in one go what the second make of what the first made."""
    later = dict(second)
    kept = [e for e in first if e[0] in REPEATABLE or not _is_replaced(e[0], later)]
    earlier = dict(first)
    return (
        *kept,
        *((name, _compose_value(name, earlier.get(name), value)) for name, value in second),
    )


def _is_replaced(name: str, later: dict[str, str]) -> bool:
    """Return whether a later edit overrules an earlier one; ranks that share nothing share no
    sequences either."""
    return name in later or (name == "sp" and later.get("tp") == "1")


def _compose_value(name: str, earlier: str | None, value: str) -> str:
    if earlier is None or name in REPEATABLE:
        return value
    if name in _FACTORS and (value.endswith("x") or name in _ALWAYS):
        return multiply_value(earlier, parse_factor(value, name))
    return _joined_pairs(name, earlier, value) if name in _OF_PAIRS else value


def _joined_pairs(name: str, earlier: str, value: str) -> str:
    """Return the options of two edits, of which factors of the same thing multiply."""
    if "=" not in earlier or "=" not in value or "inter_gbps" in value:
        raise UsageError(f"{name} {value!r} after {earlier!r}: give both at once, of the recording")
    options = dict(part.split("=", 1) for part in earlier.split(","))
    for part in value.split(","):
        key, _, text = part.partition("=")
        is_factor = key in options and text.endswith("x")
        options[key] = multiply_value(options[key], parse_factor(text, key)) if is_factor else text
    return ",".join(f"{key}={text}" for key, text in options.items())
