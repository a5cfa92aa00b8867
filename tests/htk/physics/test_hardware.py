"""The hardware catalogue is whole, sourced and agrees with figures known elsewhere."""

import csv
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import htk.physics.hardware as hardware
from htk.base.errors import UsageError
from htk.faces.cli.main import run_command_line
from htk.physics.detected import detect_gpu
from htk.physics.link_rates import scale_up_gbps

NEEDED = [
    "p100-16gb",
    "p100-16gb-pcie",
    "v100-16gb",
    "v100-32gb",
    "v100-32gb-sxm3",
    "v100-16gb-pcie",
    "v100-32gb-pcie",
    "v100s-32gb-pcie",
    "v100-16gb-dgxs",
    "v100-32gb-dgxs",
    "t4",
    "a100-40gb",
    "a100-80gb",
    "a100-40gb-pcie",
    "a100-80gb-pcie",
    "a800-80gb",
    "a10",
    "a10g",
    "l4",
    "l40",
    "l40s",
    "rtx-4090",
    "rtx-5090",
    "h100",
    "h100-pcie",
    "h100-nvl",
    "h800",
    "h20",
    "h200",
    "gh200",
    "b200",
    "b300",
    "gb200",
    "gb300",
    "mi100",
    "mi210",
    "mi250",
    "mi250x",
    "mi300a",
    "mi300x",
    "mi325x",
    "mi350x",
    "mi355x",
    "gaudi2",
    "gaudi3",
]
# Names of the reference table that the catalogue calls otherwise.
NAMES = {
    "A100-SXM-80GB": "a100-80gb",
    "A100-PCIe": "a100-80gb-pcie",
    "H100-SXM": "h100",
    "H200-SXM": "h200",
    "B200-SXM": "b200",
    "B300-SXM": "b300",
}
# The table has another figure than the vendor's data sheet: MI350X's peak.
DIFFERS = {("mi355x", "bf16_dense_tflops")}


def test_every_accelerator_is_there() -> None:
    assert set(NEEDED) <= set(hardware.load_catalogue())


def test_each_figure_has_its_source() -> None:
    text = Path(hardware.__file__).with_name("hardware.toml").read_text()
    for name, entry in tomllib.loads(text).items():
        for key, figure in entry.items():
            if key in ("device_name", "also", "vendor", "architecture", "capability"):
                continue
            assert figure["source"], f"{name}.{key}"


def test_every_entry_and_its_names_are_read_as_the_whole_file_is() -> None:
    text = Path(hardware.__file__).with_name("hardware.toml").read_text()
    entries, whole = hardware.load_catalogue(), tomllib.loads(text)
    assert list(entries) == list(whole) and len(entries) == len(whole) > 40
    names = dict(entries.driver_names())
    for short, facts in whole.items():
        assert list(names[short]) == [facts["device_name"], *facts.get("also", [])]
        for key, figure in facts.items():
            value = figure["value"] if isinstance(figure, dict) else figure
            recorded = getattr(entries[short], key)
            assert recorded == (tuple(value) if key == "also" else value), f"{short}.{key}"


def test_figures_are_plausible() -> None:
    for gpu in hardware.load_catalogue().values():
        assert gpu.achievable_bf16_tflops is None or gpu.achievable_bf16_tflops < gpu.half_tflops
        assert gpu.scale_out_gbps <= gpu.scale_up_gbps < gpu.memory_gbps
        assert 0 < gpu.memory_gb < 400
        assert gpu.half_tflops > 0
        if gpu.fp8_tflops and gpu.architecture not in ("gaudi2", "gaudi3"):
            assert 1.9 < gpu.fp8_tflops / gpu.half_tflops < 2.1
        if gpu.tf32_tflops:
            assert 0.49 < gpu.tf32_tflops / gpu.half_tflops < 0.51


def test_what_does_not_exist_is_null() -> None:
    """Formats by generation, as the vendors' programming guides have them."""
    has = {name: gpu.has for name, gpu in hardware.load_catalogue().items()}
    for name in ("p100-16gb", "v100-32gb", "v100-16gb-pcie", "t4"):
        assert not any(has[name](f) for f in ("bf16", "tf32", "fp8", "fp4")) and has[name]("fp16")
    for name in ("a100-80gb", "a10g", "a800-80gb"):
        assert has[name]("bf16") and has[name]("tf32") and not has[name]("fp8")
    for name in ("h100", "h100-pcie", "h20", "l4", "rtx-4090", "mi300x"):
        assert has[name]("fp8") and not has[name]("fp4")
    for name in ("b200", "gb300", "rtx-5090", "mi355x"):
        assert has[name]("fp4")
    assert has["mi100"]("bf16") and not has["mi250x"]("tf32") and not has["mi355x"]("tf32")
    with pytest.raises(ValueError, match="bf16"):
        has["h100"]("float")


@pytest.mark.parametrize(
    ("name", "column", "figure"),
    [
        ("mi300x", "bf16_tflops", 1307.4),
        ("mi250x", "bf16_tflops", 191.5),  # one die of two
        ("mi250x", "memory_gb", 64),
        ("v100-32gb", "fp16_tflops", 125),
        ("v100-32gb-pcie", "fp16_tflops", 112),
        ("h100-pcie", "bf16_tflops", 756),
        ("h20", "bf16_tflops", 148),
        ("h800", "scale_up_gbps", 200),
        ("l4", "memory_gbps", 300),
        ("b200", "fp4_tflops", 9000),
        ("mi100", "bf16_tflops", 92.3),
    ],
)
def test_figures_of_data_sheets(name: str, column: str, figure: float) -> None:
    assert getattr(hardware.gpu(name), column) == figure


def test_links_agree_with_those_told_by_the_device_name() -> None:
    for gpu in hardware.load_catalogue().values():
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
        gpu = hardware.load_catalogue().get(NAMES.get(row["device"], row["device"].lower()))
        if gpu is None:
            continue
        checked += 1
        dies = 2 if gpu.name == "mi250x" else 1
        pairs = {
            "bf16_dense_tflops": dies * gpu.half_tflops,
            "mem_gb": dies * gpu.memory_gb,
            "mamf_bf16_tflops": gpu.achievable_bf16_tflops,
            "sm_or_cu": dies * gpu.units,
        }
        for column, ours in pairs.items():
            if row[column] and (gpu.name, column) not in DIFFERS:
                assert ours == pytest.approx(float(row[column]), rel=0.006), f"{gpu.name} {column}"
        assert dies * gpu.memory_gbps == pytest.approx(1000 * float(row["hbm_tbps"]), rel=0.002)
    assert checked >= 13


def own(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text)
    return path


CARD = """
[my-card]
device_name = "Acme Card 9"
fp16_tflops = 100
memory_gb = { value = 24, source = "its maker" }
memory_gbps = 500
scale_up_gbps = 32
scale_out_gbps = 12.5
units = 40
"""


def test_a_file_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hardware.OWN_FILE, str(own(tmp_path, CARD)))
    card = hardware.gpu("my-card")
    assert (card.half_tflops, card.memory_gb, card.bf16_tflops) == (100, 24, None)
    assert "h100" in hardware.load_catalogue()
    assert detect_gpu("Acme Card 9 Super") == card


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nunits = 3", "device_name.* missing"),
        (CARD.replace("fp16_tflops = 100", ""), "bf16_tflops or fp16_tflops missing"),
        (CARD.replace("units = 40", "units = -1"), "units: a positive number"),
        (CARD.replace("units = 40", "units = nan"), "units: a positive number"),
        (CARD.replace("units = 40", "units = true"), "units: a positive number"),
        (CARD + "colour = 'red'", "unknown colour"),
        (CARD + "capability = 'x'", "two numbers such as"),
        (CARD + "also = 'x'", "a list of names"),
        ("a = 1", "a table was expected"),
        ("[a", "not TOML"),
    ],
)
def test_a_broken_file_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv(hardware.OWN_FILE, str(own(tmp_path, text)))
    with pytest.raises(UsageError, match=message):
        hardware.load_catalogue()


def test_a_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hardware.OWN_FILE, str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match=r"none\.toml"):
        hardware.load_catalogue()


def test_the_option_holds_for_its_command_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = own(tmp_path, CARD)
    ours = ["plan", "--model", "llama2-7b", "--gpu", "my-card", "--format", "json"]
    assert run_command_line(ours) == UsageError.exit_code
    assert run_command_line([*ours, "--gpu-file", str(path)]) == 0
    assert "Acme Card 9" in capsys.readouterr().out
    assert "my-card" not in hardware.load_catalogue()
    assert (
        run_command_line([*ours, "--gpu-file", str(tmp_path / "none.toml")]) == UsageError.exit_code
    )
    assert "none.toml" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["RTX4090", "rtx_4090", "rtx 4090", "rtx-4090"])
def test_names_are_known_however_they_are_spelt(name: str) -> None:
    assert hardware.gpu(name).device_name == hardware.gpu("rtx-4090").device_name


def test_a_name_of_several_asks_which() -> None:
    with pytest.raises(UsageError, match="which A100: a100-40gb, a100-80gb, "):
        hardware.gpu("A100")
    with pytest.raises(UsageError, match="no GPU '-' in the catalogue"):
        hardware.gpu("-")


@pytest.mark.parametrize(
    ("figures", "number_format", "expected"),
    [
        ({}, "bf16", 600),
        ({"achievable_bf16_tflops": None}, "bf16", 0.8 * 1000),
        ({}, "fp8", 1400),
        ({"achievable_fp8_tflops": None}, "fp8", 0.6 * 2000),  # as far from its peak as 16 bits
        ({"achievable_fp8_tflops": None, "fp8_tflops": None}, "fp8", None),
        ({}, "fp4", 0.7 * 4000),  # as far from its peak as fp8
        ({"achievable_fp8_tflops": None}, "fp4", 0.6 * 4000),
        ({"achievable_fp8_tflops": None, "fp8_tflops": None}, "fp4", 0.8 * 4000),
        ({"fp4_tflops": None}, "fp4", None),
        ({}, "fp32", 0.8 * 500),
        ({"tf32_tflops": None}, "fp32", 0.8 * 60),
        ({"tf32_tflops": None, "fp32_tflops": None}, "fp32", None),
    ],
)
def test_what_products_reach_of_a_gpu_worked_by_hand(
    figures: dict[str, float | None], number_format: str, expected: float | None
) -> None:
    of_all: dict[str, float | None] = {
        "bf16_tflops": 1000, "fp8_tflops": 2000, "fp4_tflops": 4000, "tf32_tflops": 500,
        "fp32_tflops": 60, "achievable_bf16_tflops": 600, "achievable_fp8_tflops": 1400,
    }  # fmt: skip
    entry = replace(hardware.gpu("h100"), **(of_all | figures))  # type: ignore[arg-type]
    reached = entry.achievable_tflops(number_format)
    assert reached == (None if expected is None else pytest.approx(expected))


def test_half_precision_is_fp16_where_there_is_no_bf16() -> None:
    v100 = hardware.gpu("v100-16gb")
    assert v100.bf16_tflops is None and v100.half_tflops == v100.fp16_tflops == 125


def test_memory_for_a_process_is_a_hundredth_less_than_the_maker_says() -> None:
    """Drivers of H100 and V100 say 79.2 of 80 GiB, and 15.8 of 16."""
    assert hardware.gpu("h100").memory_bytes == pytest.approx(79.2 * (1 << 30), rel=1e-3)
    assert hardware.gpu("v100-16gb").memory_bytes == pytest.approx(15.8 * (1 << 30), rel=3e-3)
    assert hardware.gpu("h100").limited_to(40).memory_bytes == pytest.approx(40 << 30)


def test_a_name_is_known_by_any_beginning_that_only_it_has() -> None:
    entries = hardware.load_catalogue()
    bare = {name: "".join(c for c in name if c.isalnum()) for name in entries}
    for prefix in {letters[:k] for letters in bare.values() for k in range(1, len(letters) + 1)}:
        alike = [name for name in bare if bare[name] == prefix] or [
            name for name in bare if bare[name].startswith(prefix)
        ]
        if len(alike) == 1:
            assert hardware.gpu(prefix) is entries[alike[0]]
        else:
            with pytest.raises(UsageError, match=f"which {prefix}: {', '.join(alike)}"):
                hardware.gpu(prefix)
