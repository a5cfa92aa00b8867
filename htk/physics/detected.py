"""The accelerator of a trace: the catalogue's entry for what the driver said of it."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from htk.base.mappings import Fields
from htk.physics.hardware import FORMATS, Gpu, load_catalogue, words_of

_GIB = 1 << 30
_ALIKE = 0.12  # what drivers keep for themselves, and what data sheets round
_MATRIX_FORMATS = {"fp16": (7, 0), "int8": (7, 2), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
_FP4 = (10, 0)


@dataclass(frozen=True)
class Device:
    """What a recording says of its accelerator."""

    name: str | None
    memory_bytes: int | None = None
    units: int | None = None
    capability: tuple[int, int] | None = None
    wave: int | None = None
    gpu: Gpu | None = None  # the catalogue's entry, if one fits

    def has(self, number_format: str) -> bool | None:
        """Return whether it computes in that format (fp16, bf16, tf32, fp8, fp4, int8, fp32) on
        its matrix units, by the catalogue or its compute capability; None: not known."""
        if number_format not in FORMATS:
            raise ValueError(f"{number_format}: one of {', '.join(FORMATS)} was expected")
        if self.gpu is not None:
            return self.gpu.has(number_format)
        if number_format == "fp32":
            return True
        if self.capability is None or self.wave != 32:
            return None
        least = _FP4 if number_format == "fp4" else _MATRIX_FORMATS[number_format]
        return self.capability >= least


def device_of(device_name: str | None, properties: str | None) -> Device:
    """Return what a rank's row says of its first accelerator: its name, and `device_properties`."""
    facts = _read_first_device(properties)
    major = _read_integer(facts, "computeMajor")
    minor = _read_integer(facts, "computeMinor", least=0)
    memory = _read_integer(facts, "totalGlobalMem")
    units = _read_integer(facts, "numSms")
    capability = None if major is None or minor is None else (major, minor)
    return Device(
        device_name or None,
        memory,
        units,
        capability,
        _read_integer(facts, "warpSize"),
        detect_gpu(device_name, memory, units),
    )


def list_devices(ranks: pa.Table) -> list[Device]:
    """Return the accelerator of each row of table `ranks`."""
    columns = (ranks[c].to_pylist() for c in ("device_name", "device_properties"))
    distinct: dict[tuple[str | None, str | None], Device] = {}
    rows = list(zip(*columns, strict=True))
    for row in rows:
        if row not in distinct:
            distinct[row] = device_of(*row)
    return [distinct[row] for row in rows]


def common_device(ranks: pa.Table) -> Device | None:
    """Return the accelerator of all ranks that say theirs; None: unlike ones, or none said."""
    recorded = [d for d in list_devices(ranks) if d.name or d.units]
    alike = {(d.name, d.units, d.gpu.name if d.gpu else None) for d in recorded}
    return recorded[0] if len(alike) == 1 else None


def detect_gpu(
    device_name: str | None, memory_bytes: int | None = None, units: int | None = None
) -> Gpu | None:
    """Return the entry whose words are all in the driver's name, the most telling one; virtual
    functions and makers' suffixes do not matter. Recorded memory and units decide between several,
    and against an entry that they do not fit (an eighth of a GPU); where the name tells nothing,
    they find the entry."""
    words = words_of(device_name or "")
    entries = load_catalogue()
    named = [
        (len(entry), entries[short]) for short, entry in entries.words_of_drivers if entry <= words
    ]
    fitting = [(n, gpu) for n, gpu in named if _is_alike(gpu, memory_bytes, units)]
    if fitting:
        return max(fitting, key=lambda pair: (pair[0], pair[1].units == units))[1]
    if named or memory_bytes is None or units is None or _tells_model(words):
        return None
    return next((g for g in entries.values() if _is_gpu(g, memory_bytes, units)), None)


def peak_tflops(gpu: Gpu, dtype: str | None, *, matrix: bool, tf32: bool = False) -> float | None:
    """Return the dense peak for operands of a type; outside matrix units that of fp32,
    or of fp64 for what is double."""
    if dtype in ("fp64", "complex128"):
        return gpu.fp64_matrix_tflops or gpu.fp64_tflops if matrix else gpu.fp64_tflops
    if not matrix:
        return gpu.fp32_tflops
    if dtype in ("fp32", "complex64"):
        single = gpu.fp32_matrix_tflops or gpu.fp32_tflops
        return gpu.tf32_tflops if tf32 else single
    return {
        "bf16": gpu.bf16_tflops,
        "fp16": gpu.fp16_tflops,
        "fp8": gpu.fp8_tflops,
        "fp4": gpu.fp4_tflops,
        "int8": gpu.int8_tops,
    }.get(dtype or "")


def _is_alike(gpu: Gpu, memory_bytes: int | None, units: int | None) -> bool:
    figures = ((memory_bytes and memory_bytes / _GIB, gpu.memory_gb), (units, gpu.units))
    return all(there is None or abs(there / nominal - 1) <= _ALIKE for there, nominal in figures)


def _is_gpu(gpu: Gpu, memory_bytes: int, units: int) -> bool:
    return gpu.units == units and _is_alike(gpu, memory_bytes, units)


def _tells_model(words: Iterable[str]) -> bool:
    return any(re.search(r"\d", word) for word in words)


def _read_first_device(properties: str | None) -> Fields:
    try:
        listed = json.loads(properties or "[]")
    except (ValueError, RecursionError):
        return {}
    first = listed[0] if isinstance(listed, list) and listed else None
    return first if isinstance(first, dict) else {}


def _read_integer(facts: Fields, key: str, least: int = 1) -> int | None:
    value = facts.get(key)
    is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
    return value if is_whole else None
