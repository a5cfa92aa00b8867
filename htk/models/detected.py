"""The accelerator of a trace: the catalogue's entry for the name that the driver gave."""

import re

from htk.models.hardware import Gpu, catalogue


def detected(device_name: str | None) -> Gpu | None:
    """The entry whose words are all in the name, the most telling one; virtual functions and
    makers' suffixes do not matter."""
    words = _words(device_name or "")
    fitting = [
        (len(known), gpu)
        for gpu in catalogue().values()
        for known in map(_words, (gpu.device_name, *gpu.also))
        if known <= words
    ]
    return max(fitting, key=lambda one: one[0], default=(0, None))[1]


def peak_tflops(gpu: Gpu, dtype: str | None, *, matrix: bool, tf32: bool = False) -> float | None:
    """The dense peak for operands of a type; outside matrix units that of single precision."""
    if not matrix:
        return gpu.fp32_tflops
    if dtype in ("bf16", "fp16"):
        return gpu.bf16_tflops
    if dtype in ("fp8", "int8"):
        return gpu.fp8_tflops
    if dtype == "fp32":
        return gpu.tf32_tflops if tf32 else gpu.fp32_tflops
    return None


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
