"""The memory events that a file holds."""

from pathlib import Path

from htk.traces.trace.opening import OpenOptions, open_trace

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


def rows(path: Path) -> list[dict]:
    return open_trace(str(path), OpenOptions(cache=False)).tables["memory"].to_pylist()
