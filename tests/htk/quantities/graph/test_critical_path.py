"""The pieces of a critical path, and the files that it is drawn into."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

from htk.answers.export.overlay import PROCESS, write_overlays
from htk.quantities.graph.fidelity import draw_path
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.htk.quantities.graph.small_step import step_tables
from tests.kineto_file import kernel, launch, of_rank, step, write


def test_pieces_lie_on_rows_one_behind_the_other() -> None:
    tables = step_tables()
    path = draw_path(tables, 1).pieces.to_pylist()
    runs = [p for p in path if p["kind"] == "compute"]
    assert [tables["kernels"]["name"][p["row"]].as_py() for p in runs] == ["a", "b"]
    assert [p["end_ns"] - p["start_ns"] for p in runs] == [100, 50]
    assert [p["inside"] for p in runs] == [True, True]
    assert all(b["start_ns"] == a["end_ns"] for a, b in pairwise(path))


def test_a_piece_says_where_the_path_comes_from() -> None:
    first, *rest = draw_path(step_tables(), 1).pieces.to_pylist()
    assert first["from_row"] is None
    place = (first["table"], first["row"])
    for piece in rest:
        assert (piece["from_table"], piece["from_row"]) == place
        place = (piece["table"], piece["row"])


def test_of_two_recordings_without_steps_the_longer_is_looked_at(tmp_path: Path) -> None:
    """A minute lies between them, of which nothing is known."""
    for name, at, long in (("a", 1_000, 10), ("b", 60_001_000, 80)):
        events = []
        for k in (0, 1):
            events += [launch(k + 1, at + 15 * k, 10)]
            events += [kernel("ab"[k], at + 20 + 100 * k, long, k + 1)]
        write(tmp_path / f"{name}.json", *events, **of_rank(0))
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert {p.cycle for p in trace.files} == {0, 1}
    path = draw_path(trace.tables, None).pieces.to_pylist()
    first = 60_000_000_000  # ns; the second file's
    assert path[-1]["end_ns"] - path[0]["start_ns"] < 1_000_000
    assert all(p["start_ns"] - trace.origin_ns > first - 1_000_000 for p in path)
    assert sum(p["end_ns"] - p["start_ns"] for p in path if p["kind"] == "compute") == 160_000


def traced(folder: Path, name: str) -> Path:
    """Two steps at a time that no float holds to the nanosecond; two kernels each."""
    events = []
    for s in (0, 1):
        at = 1_700_000_000_000_000 + 200 * s
        events += [step(s, at, 190)]
        for k in (0, 1):
            number = 10 * s + k + 1
            events += [launch(number, at + 15 * k, 10)]
            events += [kernel("ab"[k], at + 20 + 100 * k, (100, 50)[k], number)]
    plain = write(folder / "plain.json", *events)
    if name.endswith(".gz"):
        (folder / name).write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    else:
        plain.rename(folder / name)
    return folder / name


def drawn(path: Path) -> list[dict[str, object]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(json.loads(text, parse_float=str)["traceEvents"])


def test_the_path_is_drawn_beside_the_events_of_a_file(tmp_path: Path) -> None:
    for name in ("t.json", "t.json.gz"):
        source = traced(tmp_path, name)
        ((copy, pieces),) = write_overlays(open_trace(source), tmp_path / "out", 1).items()
        events = drawn(copy)
        mine = [e for e in events if e["pid"] == PROCESS]
        assert len(events) - len(mine) == 10 and pieces >= 2, "its own events are all there"
        slices = {e["name"]: (e["ts"], e["dur"]) for e in mine if e["ph"] == "X"}
        assert slices["a"] == ("1700000000000220.000", "100.000")
        assert sum(e["ph"] == "s" for e in mine) == sum(e["ph"] == "f" for e in mine) > 0
        assert open_trace(copy).tables["kernels"].num_rows == 4, "and it opens like any other"
        source.unlink()
