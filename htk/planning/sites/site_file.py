"""A site as a TOML file that people can read; what is read is checked, whoever wrote it."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from htk.base.core.user_toml import read_toml
from htk.base.core.whole_file import write_whole
from htk.base.errors import UsageError
from htk.physics.hardware import load_catalogue
from htk.planning.sites.site import GpuAtSite, Rate, Site, StepFactor

_MOST_GPUS = 1000
_RATES = {
    "products": "matrix products in 16 bits, over what a plan expects",
    "memory": "kernels that memory bounds, bytes a second over what a plan expects",
    "links": "links within a node, bytes a second over what is usual",
    "adapters": "adapters between nodes, bytes a second over what is usual",
}
_RATIOS = (0.01, 100.0)


def write_site(site: Site, path: Path) -> None:
    """Write the file."""
    lines = ["# A site's own figures, by htk calibrate. Every ratio is measured over expected."]
    for name, figures in sorted(site.gpus.items()):
        lines.append(f"\n[{name}]")
        for key, words in _RATES.items():
            rate: Rate | None = getattr(figures, key)
            if rate is not None:
                lines.append(
                    f"{key} = {{ ratio = {rate.ratio:.4f}, recordings = {rate.recordings} }}"
                    f"  # {words}"
                )
        if figures.steps is not None:
            steps = figures.steps
            lines.append(
                f"steps = {{ log_mean = {steps.log_mean:.5f}, log_spread = {steps.log_spread:.5f}, "
                f"steps = {steps.steps} }}  # measured steps over their plans"
            )
    write_whole(path, "\n".join(lines) + "\n")


def read_site(path: Path) -> Site:
    """Return the site of a file."""
    entries = read_toml(path, "a site")
    if len(entries) > _MOST_GPUS:
        raise UsageError(f"{path}: {len(entries):,} GPUs, more than a site has")
    return Site({name: _read_gpu(path, name, entry) for name, entry in entries.items()})


def _read_gpu(path: Path, name: str, entry: Any) -> GpuAtSite:
    where = f"{path}: [{name}]"
    if name not in load_catalogue():
        raise UsageError(f"{where}: no GPU of the catalogue")
    if not isinstance(entry, dict) or set(entry) - {*_RATES, "steps"}:
        raise UsageError(f"{where}: {', '.join(_RATES)} and steps were expected")
    rates = {key: _read_rate(f"{where} {key}", entry[key]) for key in _RATES if key in entry}
    steps = _read_step_factor(f"{where} steps", entry["steps"]) if "steps" in entry else None
    return GpuAtSite(**rates, steps=steps)


def _read_rate(where: str, entry: Any) -> Rate:
    values = _check_numbers(where, entry, {"ratio": _is_ratio, "recordings": _is_count})
    return Rate(values["ratio"], int(values["recordings"]))


def _read_step_factor(where: str, entry: Any) -> StepFactor:
    checks = {"log_mean": _is_log, "log_spread": _is_spread, "steps": _is_count}
    values = _check_numbers(where, entry, checks)
    return StepFactor(values["log_mean"], values["log_spread"], int(values["steps"]))


def _check_numbers(
    where: str, entry: Any, checks: Mapping[str, Callable[[float], bool]]
) -> dict[str, float]:
    if not isinstance(entry, dict) or set(entry) != set(checks):
        raise UsageError(f"{where}: {', '.join(checks)} were expected")
    for name, check in checks.items():
        value = entry[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not check(value):
            raise UsageError(f"{where}: {name} = {value!r} is out of range")
    return {name: float(entry[name]) for name in checks}


def _is_ratio(value: float) -> bool:
    return _RATIOS[0] <= value <= _RATIOS[1]


def _is_count(value: float) -> bool:
    return 1 <= value <= 1e9 and value == int(value)


def _is_log(value: float) -> bool:
    return abs(value) <= math.log(_RATIOS[1])


def _is_spread(value: float) -> bool:
    return 0 <= value <= math.log(_RATIOS[1])
