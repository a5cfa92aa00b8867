"""Files beside the profiler's: those that are broken are named, and the others answer."""

import gzip
import json
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.faces.cli.main import run_command_line
from htk.parsers import kernel_stacks
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, write
from tests.kineto_graph import HEADER, replay


def test_a_broken_file_beside_a_trace_is_named(tmp_path: Path) -> None:
    stack = '"30064771073": "a.py:1:f"'
    (tmp_path / "kernel_py_stacks_rank0.json").write_text(f"{{{stack}, ")
    (tmp_path / "kernel_py_stacks_rank0.json.gz").write_bytes(b'{"30064771072": "a.py:1:')
    write(tmp_path / "rank0.json", *replay(1, 0), **HEADER)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert [why.partition(": ")[2] for _, why in trace.failed] == [
        "no complete stack or annotation of a kernel"
    ]
    rows = ask_trace(trace, "kernel_top", by="source").to_pylist()
    assert {row["name"]: row["count"] for row in rows} == {
        "a.py(1): f": 1,
        "[no line of the program]": 2,
    }


BROKEN = {
    "a list": b"[1, 2]",
    "no JSON": b'{"30064771073": "a.py:1:f',
    "other types": b'{"30064771073": [{"name": 7}], "triton_x": {"stack_traces": 3}}',
    "numbers beyond 64 bits": b'{"99999999999999999999": "a.py:1:f"}',
    "cut gzip": gzip.compress(b'{"30064771073": "a.py:1:f"}' * 9)[:-20],
    "nested": b'{"30064771073": ' + b"[" * 9_000 + b"1" + b"]" * 9_000 + b"}",
    "bytes": bytes(range(256)) * 9,
}


@pytest.mark.parametrize("what", BROKEN)
def test_whatever_lies_beside_a_trace_the_trace_answers(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernel_py_stacks_rank0.json").write_bytes(BROKEN[what])
    write(tmp_path / "rank0.json", *replay(1, 0), **HEADER)
    assert run_command_line(["kernel-top", str(tmp_path), "--format", "csv", "--no-cache"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1 + 3
    assert len(shown.err.splitlines()) <= 1
    assert "Traceback" not in shown.err


def test_gigabytes_of_stacks_are_left_out_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel_stacks, "_MOST_BYTES", 1 << 20)
    stacks = {str(30_064_771_072 + k): "/app/model.py:1:f\n" * 1_000 for k in range(400)}
    packed = gzip.compress(json.dumps(stacks).encode())
    assert len(packed) < 100_000
    (tmp_path / "kernel_py_stacks_rank0.json.gz").write_bytes(packed)
    write(tmp_path / "rank0.json", *replay(1, 0), **HEADER)
    assert run_command_line(["kernel-top", str(tmp_path), "--format", "csv", "--no-cache"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1 + 3
    (line,) = shown.err.splitlines()
    assert "unpacks to more than 1,048,576 bytes" in line


def test_edges_in_a_circle_change_no_answer(tmp_path: Path) -> None:
    """Back from the last node to the first, from the one beside it to itself."""
    events = replay(1, 0)
    nodes = [event for event in events if event["cat"] in ("kernel", "graph_host_node")]
    circle: list[Event] = []
    for number, (source, target) in enumerate(((3, 0), (1, 1), (2, 0))):
        arrow = {"cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "id": (1 << 41) + number}
        ended = nodes[source]["ts"] + nodes[source]["dur"]
        circle.append({**arrow, "ph": "s", "ts": ended})
        circle.append({**arrow, "ph": "f", "bp": "e", "ts": nodes[target]["ts"]})
    answers = []
    for name, more in (("plain", []), ("circle", circle)):
        (tmp_path / name).mkdir()
        path = write(tmp_path / name / "rank0.json", *events, *more, **HEADER)
        trace = open_trace(path, OpenOptions(cache=False))
        questions = ("critical_path", "kernel_top", "recommendations")
        answers.append([ask_trace(trace, question).to_pylist() for question in questions])
    assert answers[0] == answers[1]
