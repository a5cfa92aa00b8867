"""Planes of an XPlane file: times, and lengths beyond its head."""

from pathlib import Path

from htk.core.parser import Head
from htk.parsers import xplane
from sample_traces.xplane_export import Plane, message
from tests.parsers.opened_files import opened, rows


def test_times_beyond_reason_are_left_out(tmp_path: Path) -> None:
    plane = Plane("/device:GPU:0")
    plane.line("Stream #1(Kernel)", [("far", 1 << 53, 5, {}), ("near", 5, 5, {})])
    (tmp_path / "t.pb").write_bytes(plane.bytes())
    assert [k["name"] for k in rows(opened(tmp_path / "t.pb"), "kernels")] == ["near", "far"]
    plane.line("Stream #1(Kernel)", [("backward", 9, -4, {})])
    (tmp_path / "t.pb").write_bytes(plane.bytes())
    assert len(rows(opened(tmp_path / "t.pb"), "kernels")) == 2


def test_a_plane_that_is_longer_than_the_head_is_recognised() -> None:
    start = message(1, message(2, "/host:CPU") + b"\x22" * 100_000)[: 64 * 1024]
    assert xplane.sniff(Head("x", start))
    assert not xplane.sniff(Head("x", message(1, message(2, "a plane of another kind"))))
