"""How the values of what-ifs are written: 2x, 50%, 64, name=4."""

import re

from htk.errors import UsageError

_FACTOR = re.compile(r"^(\d+(?:\.\d+)?|\.\d+)x?$")


def factor(value: str, what: str) -> float:
    """'2x' or '2'."""
    found = _FACTOR.match(value.strip())
    if not found or float(found[1]) <= 0:
        raise UsageError(f"{what} {value!r}: a positive factor such as 2x was expected")
    return float(found[1])


def pairs(value: str, what: str, known: tuple[str, ...]) -> dict[str, str]:
    """'a=1,b=2x' by name."""
    found = {}
    for part in value.split(","):
        name, mark, given = part.partition("=")
        if not mark or name.strip() not in known:
            raise UsageError(f"{what} {part!r}: one of {', '.join(k + '=…' for k in known)}")
        found[name.strip()] = given.strip()
    return found
