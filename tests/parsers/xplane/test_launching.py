"""Which HLO operator launched what the GPU ran."""

from pathlib import Path

from htk.answers.ask import ask
from htk.parsers.xplane.launching import with_operators
from htk.parsers.xplane.planes import PlaneEvent
from tests.parsers.opened_files import kept, rows


def test_hlo_operators_own_what_they_launched(shared: Path) -> None:
    """Five runs on eight devices; their ranges and the calls inside them lie on two lines."""
    trace = kept(shared / "traces/jax/conv_minimal_08/tw003.xplane.pb")
    found = {r["op"]: r for r in ask(trace, "op_breakdown", n=0).to_pylist()}
    called = {c["correlation"] for c in rows(trace, "launches") if "Launch" in c["name"]}
    for name, kernels in (
        ("cudnn-conv.1", ("Cijk", "Im3d2Col")),
        ("loop_transpose_fusion", ("loop_transpose_fusion",)),
    ):
        launched = [
            k
            for k in rows(trace, "kernels")
            if k["name"].startswith(kernels) and k["correlation"] in called
        ]
        assert len(launched) >= 39 * len(kernels)
        assert (found[name]["count"], found[name]["kernels"]) == (40, len(launched))


def test_lines_that_cannot_be_told_apart_are_left_apart() -> None:
    """Two threads run one operator at the same time: which calls are whose, nothing tells."""
    host = [PlaneEvent("fusion.1", 0, 100, thread=f"ranges {k}") for k in range(2)]
    calls = [
        PlaneEvent(
            "hipModuleLaunchKernel", 10, 20, thread=f"calls {k}", correlation=k + 1, hlo="fusion.1"
        )
        for k in range(2)
    ]
    moved, operators = with_operators(calls, [], host)
    assert [c.thread for c in moved] == ["calls 0", "calls 1"]
    assert [(o.name, o.thread, o.start, o.end) for o in operators] == [
        ("fusion.1", "calls 0", 10, 20),
        ("fusion.1", "calls 1", 10, 20),
    ]
