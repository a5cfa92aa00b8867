"""The hardware catalogue is whole, sourced and agrees with figures known elsewhere."""

import csv
import tomllib
from pathlib import Path

import pytest

import htk.models.hardware as hardware
from htk.errors import UsageError
from htk.models.link_rates import scale_up_gbps

NEEDED = [
    "v100-16gb",
    "v100-32gb",
    "a100-40gb",
    "a100-80gb",
    "a100-40gb-pcie",
    "a100-80gb-pcie",
    "h100",
    "h200",
    "gh200",
    "b200",
    "gb200",
    "mi210",
    "mi250x",
    "mi300x",
    "mi325x",
    "mi355x",
    "gaudi2",
    "gaudi3",
    "l40s",
]
# Names of the reference table that the catalogue calls otherwise.
NAMES = {
    "A100-SXM-80GB": "a100-80gb",
    "A100-PCIe": "a100-80gb-pcie",
    "H100-SXM": "h100",
    "H200-SXM": "h200",
    "B200-SXM": "b200",
}


def test_every_accelerator_is_there() -> None:
    assert set(NEEDED) <= set(hardware.catalogue())


def test_each_figure_has_its_source() -> None:
    text = Path(hardware.__file__).with_name("hardware.toml").read_text()
    for name, entry in tomllib.loads(text).items():
        for key, figure in entry.items():
            if key in ("device_name", "also", "vendor", "architecture"):
                continue
            assert figure["source"], f"{name}.{key}"


def test_figures_are_plausible() -> None:
    for gpu in hardware.catalogue().values():
        assert gpu.achievable_bf16_tflops is None or gpu.achievable_bf16_tflops < gpu.bf16_tflops
        assert gpu.scale_out_gbps <= gpu.scale_up_gbps < gpu.memory_gbps
        assert 0 < gpu.memory_gb < 400


def test_links_agree_with_those_told_by_the_device_name() -> None:
    for gpu in hardware.catalogue().values():
        known = scale_up_gbps(gpu.device_name)
        if known is not None and "pcie" not in gpu.name:
            assert gpu.scale_up_gbps == pytest.approx(known, rel=0.01)


def test_an_unknown_gpu_says_which_there_are() -> None:
    with pytest.raises(UsageError, match="a100-80gb"):
        hardware.gpu("voodoo2")


def test_against_a_reference_table(shared: Path) -> None:
    with open(shared / "truth/whatif/hw_specs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    checked = 0
    for row in rows:
        gpu = hardware.catalogue().get(NAMES.get(row["device"], row["device"].lower()))
        if gpu is None:
            continue
        checked += 1
        pairs = {
            "bf16_dense_tflops": gpu.bf16_tflops,
            "mem_gb": gpu.memory_gb,
            "mamf_bf16_tflops": gpu.achievable_bf16_tflops,
            "sm_or_cu": gpu.units,
        }
        for column, ours in pairs.items():
            if row[column]:
                assert ours == float(row[column]), f"{gpu.name} {column}"
        assert gpu.memory_gbps == pytest.approx(1000 * float(row["hbm_tbps"]))
    assert checked >= 12
