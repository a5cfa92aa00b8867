"""What would gain in a server's iterations is told alike by every face."""

from pathlib import Path

import pytest

import htk
from htk.verdicts.causes.served import find_served_causes, marks_iterations
from tests.server_recording import write_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_server(tmp_path_factory.mktemp("server") / "rank0.json").parent


def test_causes_are_ways_to_serve_with_gains_for_the_same_tokens(server: Path) -> None:
    """Twice the requests: what an iteration took, less half of what one takes then."""
    trace = htk.open(server)
    assert marks_iterations(trace) and not marks_iterations(htk.open("sample"))
    rows, why_none = find_served_causes(trace, 1.0)
    assert not why_none and all(row["edit"].startswith("--") for row in rows)
    doubled = next(row for row in rows if row["edit"] == "--serving requests=2x")
    predicted = trace.whatif().serving(requests="2x").run().to_pylist()[0]
    gain = predicted["measured_step_time_ns"] - predicted["step_time_ns"] / 2
    assert doubled["step_gain_ns"] == pytest.approx(gain, abs=2)
    assert rows[-1]["edit"].endswith("acceptance=0.7"), "what nobody measured comes last"
    few, _ = find_served_causes(trace, 30.0)
    least = 0.3 * predicted["measured_step_time_ns"]
    assert few == [row for row in rows if row["step_gain_ns"] >= least] and len(few) < len(rows)


def test_each_face_tells_them(server: Path) -> None:
    trace = htk.open(server)
    edits = [row["edit"] for row in trace.recommendations().to_pylist()]
    assert edits and "--batch" not in str(edits)
    findings = [row["name"] for row in trace.summary().to_pylist() if row["part"] == "cause"]
    assert findings == [row["finding"] for row in trace.recommendations().to_pylist()][:3]
    card = trace._repr_html_()
    assert findings[0] in card and "1 decode iteration of 32 requests" in card
    assert ">steps<" not in card
    tried = [row["whatif"] for row in trace.whatif().run().to_pylist()]
    assert "serving requests=2x" in tried, "without an edit what a server can change is tried"
