"""Proton's tree of sums and its Chrome trace, by hand; damage of both."""

import io
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.core.parser import ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.parsers import proton
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace

SAMPLES = Path(__file__).parents[2] / "sample_traces/proton"
LINE = "/home/me/net.py(40): forward"


def opened(name: str) -> Trace:
    return open_trace(SAMPLES / name, OpenOptions(cache=False))


def test_sums_of_kernels_add_up_again() -> None:
    trace = opened("sums/proton.hatchet")
    kernels = trace.tables["kernels"]
    columns = [kernels[name].to_pylist() for name in ("name", "device", "start_ns", "end_ns")]
    assert [*zip(*columns, strict=True)] == [
        ("matmul_kernel", 0, 0, 333_334),
        ("matmul_kernel", 0, 333_334, 666_668),
        ("matmul_kernel", 0, 666_668, 1_000_001),
        ("relu_kernel", 1, 0, 500),
    ]
    issues = trace.tables["parse_issues"].to_pylist()
    assert [(issue["kind"], issue["count"]) for issue in issues] == [("no_times", 2)]


@pytest.mark.parametrize(
    ("name", "total_ns"),
    [("sums/proton.hatchet", 1_000_501), ("timeline/trace.chrome_trace", 11_000)],
)
def test_scopes_and_lines_of_kernels(name: str, total_ns: int) -> None:
    trace = opened(name)
    for by, row in (("module", "layers.0"), ("source", LINE)):
        rows = ask_trace(trace, "kernel_top", by=by).to_pylist()
        assert [(r["name"], r["total_ns"]) for r in rows] == [(row, total_ns)]


def test_a_timeline_keeps_its_times_and_gpus() -> None:
    trace = opened("timeline/trace.chrome_trace")
    times = ask_trace(trace, "time_breakdown").to_pylist()
    assert [(t["device"], t["compute_ns"]) for t in times] == [(0, 5_500), (1, 5_500)]
    ranges = trace.tables["annotations"].to_pylist()
    assert [(r["name"], r["thread"], r["end_ns"] - r["start_ns"]) for r in ranges] == [
        ("layers.0", "3", 9_500)
    ]


def test_a_damaged_file_is_refused_in_one_line() -> None:
    whole = (SAMPLES / "sums/proton.hatchet").read_bytes()
    for data in (whole[:-40], b"[]", b'{"traceEvents": 3}', b"[" * 9_000):
        with pytest.raises(MalformedTrace, match=r"^p\.hatchet: "):
            proton.parse(Source("p.hatchet", lambda data=data: io.BytesIO(data)), ParseOptions())
