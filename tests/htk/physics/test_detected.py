"""Which accelerator a recording is of: by the driver's name, its memory and its units."""

import json

import pyarrow as pa
import pytest

from htk.physics.detected import common_device, detect_gpu, device_of, list_devices, peak_tflops
from htk.physics.hardware import gpu

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "gib", "units", "entry"),
    [
        ("NVIDIA H100 80GB HBM3", 79.2, 132, "h100"),
        ("NVIDIA H100 PCIe", 79.2, 114, "h100-pcie"),
        ("NVIDIA H100 NVL", 93.1, 132, "h100-nvl"),
        ("NVIDIA B300 SXM6 AC", 268, 148, "b300"),
        ("NVIDIA A10G", 22.1, 80, "a10g"),
        ("Tesla T4", 14.6, 40, "t4"),
        ("Tesla V100-DGXS-32GB", 31.7, 80, "v100-32gb-dgxs"),
        ("Tesla V100-PCIE-16GB", 15.8, 80, "v100-16gb-pcie"),
        ("AMD Instinct MI300X VF", 191.5, 304, "mi300x"),
        ("AMD Instinct MI250X / MI250", 64, 110, "mi250x"),
        ("AMD Instinct MI250X / MI250", 64, 104, "mi250"),
        # Drivers that name nothing: memory and units tell.
        ("", 192, 304, "mi300x"),
        (None, 256, 304, "mi325x"),
        ("AMD Radeon Graphics", 64, 110, "mi250x"),
        # A slice, or another card that bears the name.
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4.75, 14, None),
        ("NVIDIA GeForce RTX 4090 D", 23.6, 114, "rtx-4090"),
        ("NVIDIA GeForce RTX 3090", 23.6, 82, None),
        ("AMD Radeon Graphics", 16, 60, None),
        ("", None, None, None),
    ],
)
def test_detected(name: str | None, gib: float | None, units: int | None, entry: str) -> None:
    found = detect_gpu(name, None if gib is None else round(gib * GIB), units)
    assert (found.name if found else None) == entry


def properties(**facts: object) -> str:
    return json.dumps([facts])


def test_what_a_device_has_by_entry_or_by_capability() -> None:
    v100 = device_of("Tesla V100-SXM2-16GB", properties(numSms=80, computeMajor=7, computeMinor=0))
    assert v100.gpu == gpu("v100-16gb") and v100.has("fp16") and v100.has("bf16") is False
    turing = device_of(
        "NVIDIA GeForce RTX 2080 Ti",
        properties(numSms=68, computeMajor=7, computeMinor=5, warpSize=32),
    )
    assert turing.gpu is None
    assert [turing.has(f) for f in ("fp16", "int8", "bf16", "tf32", "fp8", "fp4")] == [
        True, True, False, False, False, False
    ]  # fmt: skip
    ampere = device_of("NVIDIA A40", properties(computeMajor=8, computeMinor=6, warpSize=32))
    assert ampere.has("bf16") and ampere.has("tf32") and ampere.has("fp8") is False
    vega = device_of("AMD Radeon VII", properties(computeMajor=9, computeMinor=0, warpSize=64))
    assert vega.has("bf16") is None, "AMD's numbers do not tell"
    assert device_of(None, None).has("bf16") is None
    with pytest.raises(ValueError, match="tf32"):
        vega.has("float")


@pytest.mark.parametrize("text", [None, "", "[]", "{}", "nonsense", '["x"]', "[" * 100_000])
def test_properties_are_not_trusted(text: str | None) -> None:
    assert device_of("Tesla T4", text).gpu == gpu("t4")


def test_ranks() -> None:
    mi, h100 = properties(numSms=110, totalGlobalMem=64 * GIB), properties(numSms=132)
    table = pa.table(
        {
            "device_name": ["AMD Instinct MI250X", "NVIDIA H100 80GB HBM3", None],
            "device_properties": [mi, h100, None],
        }
    )
    assert [d.gpu.name if d.gpu else None for d in list_devices(table)] == ["mi250x", "h100", None]
    assert common_device(table) is None
    same = common_device(table.take([0, 2]))
    assert same is not None and same.gpu == gpu("mi250x")


def test_peaks_by_type() -> None:
    v100, mi250x, b200 = gpu("v100-32gb"), gpu("mi250x"), gpu("b200")
    assert peak_tflops(v100, "fp16", matrix=True) == 125
    assert peak_tflops(v100, "bf16", matrix=True) is None
    assert peak_tflops(v100, "fp32", matrix=True, tf32=True) is None
    assert peak_tflops(mi250x, "fp32", matrix=True) == 47.85
    assert peak_tflops(mi250x, "fp32", matrix=False) == 23.95
    assert peak_tflops(b200, "fp4", matrix=True) == 9000
    assert peak_tflops(b200, "fp64", matrix=True) == 37
    assert peak_tflops(b200, "int32", matrix=True) is None


@pytest.mark.parametrize(
    ("number_format", "least"),
    [("fp16", (7, 0)), ("int8", (7, 2)), ("bf16", (8, 0)), ("tf32", (8, 0)), ("fp8", (8, 9)),
     ("fp4", (10, 0))],
)  # fmt: skip
def test_formats_by_the_compute_capability_that_brought_them(
    number_format: str, least: tuple[int, int]
) -> None:
    """As the programming guide of CUDA lists them, of GPUs that the catalogue lacks."""
    for capability in ((6, 1), (7, 0), (7, 2), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0)):
        major, minor = capability
        facts = {"computeMajor": major, "computeMinor": minor, "warpSize": 32}
        device = device_of("NVIDIA nonesuch", properties(**facts))
        assert device.has(number_format) is (capability >= least), capability
        assert device.has("fp32") is True
        assert device_of("nonesuch", properties(**{**facts, "warpSize": 64})).has("fp8") is None
