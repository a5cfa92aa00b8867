"""What can be planted in a job, and what may be said of it: `straggler:rank=3,factor=1.5`."""

from collections.abc import Mapping

from htk.base.errors import UsageError

PLANTS: dict[str, tuple[str, ...]] = {
    "straggler": ("rank", "node", "stage", "rotate", "factor"),
    "slow_link": ("node", "to", "nic", "stage", "factor"),
    "full_allocator": ("rank", "step", "times", "ms"),
    "starved_loader": ("rank", "step", "ms"),
    "data_stall": ("rank", "step", "ms"),
    "cpu_bound": ("rank", "step", "factor"),
    "clock_offset": ("ms",),
    "regressed_kernel": ("name", "rank", "step", "factor"),
    "missing_rank": ("rank",),
    "unlinked_launch": ("rank", "launch"),
}
_WORDS = ("name",)  # keys whose value is text

Value = float | str


def read_plant(text: str) -> tuple[str, dict[str, Value]]:
    """Return the name and options of a plant, written `name` or `name:key=value,key=value`."""
    name, _, rest = text.partition(":")
    if name not in PLANTS:
        raise UsageError(f"nothing called {name!r} to plant; there are {', '.join(PLANTS)}")
    options: dict[str, Value] = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        if key not in PLANTS[name]:
            raise UsageError(f"{name} takes {', '.join(PLANTS[name])}, not {key!r}")
        try:
            options[key] = value if key in _WORDS else float(value)
        except ValueError:
            raise UsageError(f"{text}: {value!r} is not a number") from None
    return name, options


def check_plant(
    name: str, options: Mapping[str, Value], ranges: Mapping[str, tuple[float, float]]
) -> None:
    """Raise UsageError unless each number is within its range; those with a range are whole."""
    for key, value in options.items():
        if isinstance(value, str):
            continue
        low, high = ranges.get(key, (0, 1e9))
        if not low <= value <= high or (key in ranges and value != int(value)):
            raise UsageError(f"{name}: {key} is {value:g}, and must be of {low:g} to {high:g}")
