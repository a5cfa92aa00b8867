"""The file of a site's figures."""

from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.planning.sites.site import GpuAtSite, Rate, Site, StepFactor
from htk.planning.sites.site_file import read_site, write_site


def test_a_site_is_read_as_it_was_written(tmp_path: Path) -> None:
    site = Site({
        "a100-80gb": GpuAtSite(Rate(0.9, 3), None, Rate(1.1, 1), None, StepFactor(-0.1, 0.05, 7)),
        "h100": GpuAtSite(memory=Rate(0.95, 2)),
    })  # fmt: skip
    write_site(site, tmp_path / "site.toml")
    assert read_site(tmp_path / "site.toml") == site


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[q9]\nproducts = {ratio = 1.0, recordings = 1}", "no GPU of the catalogue"),
        ("[h100]\nproducts = 3", "were expected"), ("[h100]\nspeed = 3", "were expected"),
        ("[h100]\nproducts = {ratio = 1e9, recordings = 1}", "out of range"),
        ("[h100]\nproducts = {ratio = nan, recordings = 1}", "out of range"),
        ("[h100]\nproducts = {ratio = 1.0, recordings = 0.5}", "out of range"),
        ("[h100]\nproducts = {ratio = true, recordings = 1}", "out of range"),
        ("[h100]\nsteps = {log_mean = 0.1, log_spread = -1.0, steps = 3}", "out of range"),
        ("[h100]\nsteps = {log_mean = 99.0, log_spread = 1.0, steps = 3}", "out of range"),
        ("h100 = 3", "were expected"), ("[", "not TOML"),
    ],
)  # fmt: skip
def test_a_damaged_site_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_site(path)
