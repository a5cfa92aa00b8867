"""GPU memory is nearly full: not a matter of time, yet."""

import json

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Ints
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.recorded import CauseEvidence

FULL_PCT = 90.0  # of the GPU's memory: the next longer batch may not fit


FINDING = "GPU memory is nearly full"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    memory_extents = recorded["memory_extents"]
    reserved: Ints = read_numbers(memory_extents["reserved_bytes"])
    on_gpu = read_numbers(memory_extents["device_type"], -1) == 1
    limits = [
        _read_limit(text) for text in recorded["ranks"]["device_properties"].to_pylist() if text
    ]
    if not on_gpu.any() or not limits or not min(limits):
        return []
    share = 100.0 * int(reserved[on_gpu].max()) / min(limits)
    if share < FULL_PCT:
        return []
    return [
        Cause(
            FINDING,
            f"{share:.0f} % of the GPU is reserved at the peak",
            "activation checkpointing, smaller micro-batches with accumulation, more sharding",
            None,
            "memory_peaks",
        )
    ]


def _read_limit(properties: str) -> int:
    """Memory of the first GPU, as the profiler recorded it."""
    devices = json.loads(properties)
    return int(devices[0].get("totalGlobalMem", 0)) if devices else 0
