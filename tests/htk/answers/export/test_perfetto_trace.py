"""Perfetto's protobuf, decoded field by field and held against the tables."""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import htk
from htk.answers.export.perfetto_trace import write_perfetto
from htk.base.errors import MissingTable
from htk.faces.cli.main import run_command_line
from htk.parsers.common.wire import BYTES, VARINT, Field, read_fields
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import kernel, launch, of_rank, op, write

ROOT = Path(__file__).parents[4]
SETS = ("kineto/rank*.pt.trace.json", "nsight", "rocpd", "xplane")
SAMPLE = ROOT / "htk/traces/sample"
Slice = tuple[str, int, int]


def opened(path: Path) -> Trace:
    return open_trace(path, OpenOptions(cache=False))


@dataclass
class Drawn:
    """What a viewer sees: slices of each track, and where arrows begin and end."""

    tracks: dict[int, str] = field(default_factory=dict)
    below: dict[int, int] = field(default_factory=dict)
    slices: dict[int, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    begins: dict[int, str] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)


def inner(data: bytes, of: Field) -> dict[int, list[Field]]:
    found: dict[int, list[Field]] = defaultdict(list)
    for part in read_fields(data, of.start, of.end):
        found[part.number].append(part)
    return found


def text(data: bytes, of: Field) -> str:
    return data[of.start : of.end].decode()


def read(path: Path) -> Drawn:
    data, drawn = path.read_bytes(), Drawn()
    names: dict[int, str] = {}
    still_open: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for packet in read_fields(data, 0, len(data)):
        assert (packet.number, packet.kind) == (1, BYTES)
        parts = inner(data, packet)
        assert parts[10][0].value == 1  # one sequence
        for described in parts.get(60, []):
            of = inner(data, described)
            uuid = of[1][0].value
            drawn.tracks[uuid] = "/".join(_called(data, of))
            drawn.below[uuid] = of[5][0].value if 5 in of else 0
        for interned in parts.get(12, []):
            for entry in inner(data, interned)[2]:
                of = inner(data, entry)
                names[of[1][0].value] = text(data, of[2][0])
        for event in parts.get(11, []):
            assert parts[13][0].value == 2  # needs the names told before
            of, at = inner(data, event), parts[8][0].value
            assert parts[8][0].kind == VARINT
            track = of[11][0].value
            assert track in drawn.tracks
            if drawn.tracks.get(drawn.below[track]) == "htk" or of[9][0].value > 2:
                continue  # what htk draws; instants and counters
            if of[9][0].value == 1:
                name = names[of[10][0].value]
                still_open[track].append((name, at))
                for number, arrows in ((47, drawn.begins), (48, drawn.ends)):
                    for flow in of.get(number, []):
                        arrows[struct.unpack_from("<Q", data, flow.start)[0]] = name
            elif of[9][0].value == 2:
                name, start = still_open[track].pop()
                drawn.slices[track].append((name, start, at))
    assert not any(still_open.values())
    return drawn


def _called(data: bytes, of: dict[int, list[Field]]) -> Iterator[str]:
    if 2 in of:
        yield text(data, of[2][0])
    for number, key in ((3, 6), (4, 5)):
        if number in of:
            yield text(data, inner(data, of[number][0])[key][0])


@pytest.mark.parametrize("name", SETS)
def test_every_slice_has_its_name_and_length(tmp_path: Path, name: str) -> None:
    trace = opened(ROOT / "sample_traces" / name)
    path, count = write_perfetto(trace, tmp_path)
    drawn = read(path)
    found = Counter((n, end - start) for s in drawn.slices.values() for n, start, end in s)
    wanted: Counter[tuple[str, int]] = Counter()
    drawn_tables = ("cpu_ops", "annotations", "python_calls", "launches", "kernels", "overheads")
    for table in (*drawn_tables, "syncs"):
        for row in trace.tables[table].to_pylist():
            wanted[row["name"], row["end_ns"] - row["start_ns"]] += 1
    assert sum(found.values()) == sum(wanted.values()) <= count
    if any(r["drift_ppm"] for r in trace.tables["rank_clocks"].to_pylist()):
        assert Counter(n for n, _ in found.elements()) == Counter(n for n, _ in wanted.elements())
    else:
        assert found == wanted


@pytest.mark.parametrize("name", ["nsight", "rocpd", "kineto/rank*.pt.trace.json"])
def test_arrows_lead_from_a_launch_to_what_it_started(tmp_path: Path, name: str) -> None:
    trace = opened(ROOT / "sample_traces" / name)
    drawn = read(write_perfetto(trace, tmp_path)[0])
    calls = trace.tables["launches"].to_pylist()
    pairs = zip(
        trace.tables["kernels"].to_pylist(), trace.tables["kernel_links"].to_pylist(), strict=True
    )
    wanted = [
        (calls[link["launch_row"]]["name"], k["name"])
        for k, link in pairs
        if link["launch_row"] is not None
    ]
    assert sorted((drawn.begins[k], drawn.ends[k]) for k in drawn.ends) == sorted(wanted)
    assert drawn.begins.keys() == drawn.ends.keys()


def test_tracks_by_hand(tmp_path: Path) -> None:
    """Two kernels of a stream that overlap stand on two lines, each at its own time."""
    for rank in range(2):
        write(
            tmp_path / f"rank{rank}.json",
            op("aten::mm", 10, 8),
            launch(1, 12),
            launch(2, 14),
            kernel("first", 20, 10, 1),
            kernel("second", 25, 10, 2),
            kernel("inside", 26, 0, 3),
            **of_rank(rank, 2),
        )
    drawn = read(write_perfetto(opened(tmp_path), tmp_path / "out")[0])
    processes = {uuid for uuid, name in drawn.tracks.items() if name in ("rank 0", "rank 1")}
    assert len(processes) == 2
    lines = Counter((drawn.tracks[u], drawn.below[u] in processes) for u in drawn.slices)
    assert lines == {("thread 1", True): 2, ("GPU 0, stream 7", True): 4}
    placed = sorted(s for u, s in drawn.slices.items() if drawn.tracks[u].startswith("GPU"))
    assert placed == sorted(
        [[("inside", 16_000, 16_000), ("first", 10_000, 20_000)], [("second", 15_000, 25_000)]] * 2
    )


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    source = str(ROOT / "sample_traces/nsight")
    assert run_command_line(["convert", source, "--format", "perfetto", "-o", str(out)]) == 0
    assert (out / "trace.pftrace").is_file()
    assert "138 slices" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sample", "kineto/rank*.pt.trace.json"])
def test_answers_of_the_written_trace_are_those_of_the_recording(tmp_path: Path, name: str) -> None:
    recorded = htk.open(recorded_path(name))
    assert (
        run_command_line(
            ["convert", recorded_path(name), "--format", "perfetto", "-o", str(tmp_path)]
        )
        == 0
    )
    again = htk.open(tmp_path / "trace.pftrace")
    for question in (
        "annotation_breakdown",
        "comm_summary",
        "comm_wait",
        "critical_path",
        "host_stalls",
        "idle_breakdown",
        "kernel_top",
        "launch_stats",
        "memory_peaks",
        "module_breakdown",
        "op_tree",
        "python_hotspots",
        "queue_length",
        "step_times",
        "stragglers",
        "time_breakdown",
    ):
        assert _answers(again, question) == _answers(recorded, question), question


def recorded_path(name: str) -> str:
    return "sample" if name == "sample" else str(ROOT / "sample_traces" / name)


def _answers(session: htk.Session, question: str) -> list[str] | str:
    """Return the rows of an answer in any order, or that there is none."""
    try:
        rows = getattr(session, question)().to_pylist()
    except MissingTable:
        return "not recorded"
    return sorted(str(row) for row in rows)


def test_a_viewer_finds_counters_and_the_critical_path(tmp_path: Path) -> None:
    data = write_perfetto(opened(SAMPLE), tmp_path)[0].read_bytes()
    tracks = {text(data, part) for part in _descriptions(data)}
    assert "critical path" in tracks
    assert any(name.startswith("rank 0: ") for name in tracks)


def _descriptions(data: bytes) -> Iterator[Field]:
    """The names of tracks that are no threads."""
    for packet in read_fields(data, 0, len(data)):
        for described in inner(data, packet).get(60, []):
            yield from inner(data, described).get(2, [])


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", {"ph": "C", "name": "c", "pid": 1, "ts": 1, "args": {"v": 1}})
    with pytest.raises(MissingTable, match="no operator, range, call or GPU activity"):
        write_perfetto(opened(path), tmp_path / "out")
