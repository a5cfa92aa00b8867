"""Whether things can be shared out evenly, and the nearest numbers of ranks that can."""

from collections.abc import Mapping

from htk.base.errors import UsageError


def check_divides(name: str, ranks: int, totals: Mapping[str, int]) -> None:
    """Raise UsageError unless so many ranks share `totals` evenly; it names the nearest that do."""
    left = [f"{shared} ({total})" for shared, total in totals.items() if total % ranks]
    if left:
        raise UsageError(
            f"{name} is {ranks}, and must divide {' and '.join(left)}:"
            f" take {' or '.join(map(str, nearest_shares(ranks, list(totals.values()))))}"
        )


def nearest_shares(ranks: int, totals: list[int]) -> list[int]:
    """Return the next smaller and the next larger number that divides all `totals`."""
    dividing = [n for n in range(1, min(totals) + 1) if not any(total % n for total in totals)]
    smaller = [n for n in dividing if n < ranks]
    larger = [n for n in dividing if n > ranks]
    return smaller[-1:] + larger[:1]


def check_multiple(name: str, number: int, unit: int, why: str) -> None:
    """Raise UsageError unless a number is a multiple of `unit`; it names the nearest that are."""
    if number % unit:
        low = number // unit * unit
        nearest = [n for n in (low, low + unit) if n]
        raise UsageError(
            f"{name} is {number}, and must be a multiple of {unit} {why}:"
            f" take {' or '.join(map(str, nearest))}"
        )
