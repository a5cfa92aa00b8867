"""Files beside the profiler's: those that are broken are named, and the others answer."""

from pathlib import Path

from htk.answers.ask import ask
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import write
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
    rows = ask(trace, "kernel_top", by="source").to_pylist()
    assert {row["name"]: row["count"] for row in rows} == {
        "a.py(1): f": 1,
        "[no line of the program]": 2,
    }
