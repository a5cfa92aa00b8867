"""The hardware catalogue: accelerators by name, from hardware.toml beside this module."""

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from htk.errors import UsageError


@dataclass(frozen=True)
class Gpu:
    """Rates in units of 1e12 operations, 1e9 bytes; `None`: not known."""

    name: str
    device_name: str  # as the driver gives it
    vendor: str
    architecture: str
    bf16_tflops: float  # dense peaks
    fp32_tflops: float | None
    tf32_tflops: float | None
    fp8_tflops: float | None
    achievable_bf16_tflops: float | None  # the fastest matrix product that was measured
    achievable_fp8_tflops: float | None
    memory_gb: float
    memory_gbps: float
    scale_up_gbps: float  # all links to its neighbours, one way
    scale_out_gbps: float  # its usual share of the node's adapters, one way
    units: int  # streaming multiprocessors, compute units or tensor cores
    tdp_w: int | None
    also: tuple[str, ...]  # other names that drivers give it


@cache
def catalogue() -> dict[str, Gpu]:
    text = files("htk.models").joinpath("hardware.toml").read_text(encoding="utf-8")
    names = {f.name for f in fields(Gpu)}
    found = {}
    for name, entry in tomllib.loads(text).items():
        figures: dict[str, Any] = dict.fromkeys(names)
        for key, given in entry.items():
            figures[key] = given["value"] if isinstance(given, dict) else given
        figures["also"] = tuple(figures["also"] or ())
        found[name] = Gpu(**{**figures, "name": name})
    return found


def gpu(name: str) -> Gpu:
    known = catalogue()
    if name.lower() not in known:
        raise UsageError(f"no GPU {name!r} in the catalogue; there are {', '.join(known)}")
    return known[name.lower()]
