"""Files of settings that somebody else wrote: read, or refused in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import load_catalogue
from htk.planning.sites.site_file import read_site
from htk.recording.simulate.job_file import from_toml
from htk.verdicts.economics.price_list import price_list

READERS: list[Callable[..., object]] = [
    lambda path: load_catalogue(str(path)),
    lambda path: price_list(path),
    read_site,
    from_toml,
]
VALUES = [
    "9" * 5000, "9" * 400, "-9223372036854775809", "nan", "1e308", "true", '"x"',
    "[[[1]]]", "1979-05-27T07:32:00Z", "[nan]",
    "{a = {b = 1}}",
]  # fmt: skip
KEYS = ["layers", "hidden", "currency", "steps"]
OF_GPU = ["memory_gb", "dense_tflops", "per_hour", "watts"]
TEXTS = [
    b"x = " + b"[" * 5000,
    b"x = " + b"{a=" * 5000,
    b"[" + b"a." * 2000 + b"a]",
    b"\xff\xfe",
    b"\x00",
    b"x = 1\nx = 2",
    b'x = "' + b"y" * 100_000,
    *(f"{key} = {value}".encode() for key in KEYS for value in VALUES),
    *(f"[h100]\n{key} = {value}".encode() for key in OF_GPU for value in VALUES),
]


@pytest.mark.parametrize("read", READERS, ids=["gpus", "prices", "site", "simulation"])
def test_settings_are_read_or_refused_in_one_line(
    read: Callable[..., object], tmp_path: Path
) -> None:
    refused = 0
    for number, text in enumerate(TEXTS):
        path = tmp_path / f"{number}.toml"
        path.write_bytes(text)
        try:
            read(path)
        except UsageError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 2000, text[:60]
    assert refused > len(KEYS) * len(VALUES)
