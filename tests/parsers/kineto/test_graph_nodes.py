"""Arrows between nodes of a replayed graph, as torch 2.15 draws them: by hand on a small graph."""

from pathlib import Path

from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import write
from tests.kineto_graph import HEADER, replay


def test_nodes_wait_for_those_of_their_replay(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", *replay(1, 0), *replay(2, 100), **HEADER)
    kernels = open_trace(path, OpenOptions(cache=False)).tables["kernels"]
    columns = (kernels[name].to_pylist() for name in ("name", "stream", "waits_for_nodes"))
    waits = [*zip(*columns, strict=True)]
    assert sorted(waits[:3], key=lambda row: str(row[0])) == [
        ("a", 7, None),
        ("b", 22, "[[1,0]]"),
        ("c", 7, "[[1,2000],[2,0]]"),  # for the first through a callback of 2 us
    ]
    assert waits[3:] == waits[:3]


def test_arrows_that_run_in_circles_or_nowhere(tmp_path: Path) -> None:
    events = replay(1, 0)
    arrows = [event for event in events if event.get("cat") == "ac2g"]
    back = [
        {**arrows[3], "id": arrows[0]["id"] + 90, "ph": "f"},  # the callback waits for itself
        {**arrows[3], "id": arrows[0]["id"] + 90, "ph": "s", "ts": arrows[3]["ts"] + 2},
        {**arrows[0], "id": arrows[0]["id"] + 91},  # an end of nothing
        {**arrows[1], "id": arrows[0]["id"] + 92, "tid": 99},  # a row that nothing stands on
    ]
    path = write(tmp_path / "t.json", *events, *back, **HEADER)
    kernels = open_trace(path, OpenOptions(cache=False)).tables["kernels"]
    assert kernels["waits_for_nodes"].to_pylist() == [None, "[[1,0]]", "[[1,2000],[2,0]]"]
