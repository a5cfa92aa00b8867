"""XLA profiles, against a plain decoding of the file."""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import HtkError, MalformedTrace
from sample_traces.xplane_export import BEGAN_NS, LINE_NS, Plane, profile
from tests.parsers.opened_files import kept, opened, rows

SAMPLE = Path(__file__).parents[2] / "sample_traces/xplane/host.xplane.pb"


GEMM = "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1"


def decoded(data: bytes) -> Iterator[tuple[int, Any]]:
    """Fields of a message, decoded without any code of the parser."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or number()
        yield tag >> 3, data[at : at + size]
        at += size


def on_gpu(data: bytes) -> Iterator[tuple[int, int, str, int, int]]:
    """Device, stream, name, start and end in picoseconds of each event on a stream."""
    for field, plane in decoded(data):
        parts = list(decoded(plane)) if field == 1 else []
        title = next((v.decode() for n, v in parts if n == 2), "")
        if not title.startswith("/device:GPU:"):
            continue
        names = {
            dict(decoded(v))[1]: dict(decoded(dict(decoded(v))[2]))[2].decode()
            for n, v in parts
            if n == 4
        }
        for line in (list(decoded(v)) for n, v in parts if n == 3):
            head = dict(line)
            if not head[2].startswith(b"Stream #"):
                continue
            stream = int(head[2].split(b"#")[1].split(b"(")[0])
            for event in (dict(decoded(v)) for n, v in line if n == 4):
                start = head[3] * 1000 + event.get(2, 0)
                device = int(title.rpartition(":")[2])
                yield device, stream, names[event[1]], start, start + event[3]


@pytest.fixture(scope="module", params=["sample", "recorded"])
def file(request: pytest.FixtureRequest) -> Path:
    if request.param == "sample":
        return SAMPLE
    shared: Path = request.getfixturevalue("shared")
    return shared / "traces/jax/conv_minimal_08/tw003.xplane.pb"


def test_activities_are_those_of_the_file(file: Path) -> None:
    trace = kept(file)
    base = rows(trace, "ranks")[0]["base_time_ns"]
    wanted = sorted(
        (device, stream, start // 1000 + base, end // 1000 + base)
        for device, stream, _, start, end in on_gpu(file.read_bytes())
    )
    found = rows(trace, "kernels")
    assert sorted((k["device"], k["stream"], k["start_ns"], k["end_ns"]) for k in found) == wanted
    names = Counter(n.removesuffix(".kd") for _, _, n, _, _ in on_gpu(file.read_bytes()))
    kernels = Counter(k["name"] for k in found if k["activity"] == "kernel")
    assert kernels == Counter({n: c for n, c in names.items() if not n.startswith("Memcpy")})


def test_busy_time_is_the_union_over_the_streams_of_each_device(file: Path) -> None:
    spans = [(d, s // 1000, e // 1000) for d, _, _, s, e in on_gpu(file.read_bytes())]
    for row in ask_trace(kept(file), "time_breakdown").to_pylist():
        busy = reach = 0
        for _, start, end in sorted(s for s in spans if s[0] == row["device"]):
            busy += max(end, reach) - max(start, reach)
            reach = max(end, reach)
        assert row["busy_ns"] == busy


def test_another_tool_counts_the_same_kernels_a_device(shared: Path) -> None:
    """Its tables are of one GPU of another run of the same program."""
    with (shared / "traces/jax/kernel_launchers_summary.csv").open() as table:
        wanted = {row["name"]: int(row["Count"]) for row in csv.DictReader(table)}
    trace = kept(shared / "traces/jax/conv_minimal_08/tw003.xplane.pb")
    for device in range(8):
        found = Counter(k["name"] for k in rows(trace, "kernels", device=device))
        found.pop("__amd_rocclr_copyBuffer", None)
        assert found == wanted


def test_the_program_by_hand() -> None:
    trace = kept(SAMPLE)
    (who,) = rows(trace, "ranks")
    assert (who["host"], who["device_count"], who["base_time_ns"]) == ("node7", 2, BEGAN_NS)
    origin = BEGAN_NS + LINE_NS
    kernels = rows(trace, "kernels", device=1)
    assert [(k["start_ns"] - origin, k["name"]) for k in kernels[:2]] == [
        (4_200, "Memcpy HtoD (Pinned -> Device)"),
        (6_000 + 900, GEMM),
    ]
    assert (kernels[0]["size_bytes"], kernels[0]["stream"]) == (4096, 10)
    assert (kernels[1]["grid"], kernels[1]["block"]) == ("[8,2,1]", "[256,1,1]")
    links = trace.tables["kernel_links"].to_pylist()
    ops, calls = rows(trace, "cpu_ops"), rows(trace, "launches")
    owned = Counter(
        (
            k["device"],
            ops[link["op_row"]]["name"] if link["op_row"] is not None else None,
            calls[link["launch_row"]]["name"],
            link["step"],
        )
        for k, link in zip(rows(trace, "kernels"), links, strict=True)
    )
    assert owned == {
        (device, op, call, step): 2 if op == "gemm.2" else 1
        for device in range(2)
        for step in (5, 6)
        for op, call in (
            (None, "hipMemcpyAsync"),
            ("fusion.1", "hipModuleLaunchKernel"),
            ("gemm.2", "hipModuleLaunchKernel"),
        )
    }
    assert Counter((op["name"], op["thread"]) for op in ops) == {
        (name, f"py_xla_execute/{device}"): 2
        for name in ("fusion.1", "gemm.2")
        for device in range(2)
    }
    assert [c["name"] for c in rows(trace, "python_calls")] == ["model.py:7 forward"]
    assert [(i["kind"], i["text"]) for i in rows(trace, "parse_issues")] == [
        ("unread_plane", "lines of /device:CUSTOM:Megascale Trace")
    ]


def test_a_profile_of_unknown_devices_alone_says_so(tmp_path: Path) -> None:
    other = Plane("/device:CUSTOM:X")
    other.line("Actions", [("copy.1", 5, 5, {})])
    (tmp_path / "t.xplane.pb").write_bytes(other.bytes())
    with pytest.raises(MalformedTrace, match="only those of /device:CUSTOM:X, which htk does not"):
        opened(tmp_path / "t.xplane.pb")


def test_a_device_without_lines_lost_nothing(tmp_path: Path) -> None:
    profile = SAMPLE.read_bytes() + Plane("/device:CUSTOM:Megascale Trace").bytes()
    (tmp_path / "t.xplane.pb").write_bytes(profile)
    assert len(rows(opened(tmp_path / "t.xplane.pb"), "parse_issues")) == 1


def test_any_cut_is_survived_or_refused_in_one_line(tmp_path: Path) -> None:
    whole = SAMPLE.read_bytes()
    kernels = set()
    for cut in range(0, len(whole), 41):
        path = tmp_path / "t.pb"
        for data in (whole[:cut], whole[:cut] + b"\xff" * 9 + whole[cut + 9 :]):
            path.write_bytes(data)
            try:
                kernels.add(len(rows(opened(path), "kernels")))
            except HtkError as error:
                assert "\n" not in str(error)
    assert max(kernels) == 16 and len(kernels) > 2


def test_the_sample_is_what_its_script_writes() -> None:
    assert profile() == SAMPLE.read_bytes()
