"""Which HLO operator launched what the GPU ran."""

from pathlib import Path

from htk.answers.ask import ask_trace
from htk.parsers.xplane.launching import with_operators
from htk.parsers.xplane.space import PlaneEvent
from tests.parsers.opened_files import kept, rows


def test_hlo_operators_own_what_they_launched(shared: Path) -> None:
    """Five runs on eight devices; their ranges and the calls inside them lie on two lines."""
    trace = kept(shared / "traces/jax/conv_minimal_08/tw003.xplane.pb")
    found = {r["op"]: r for r in ask_trace(trace, "op_breakdown", n=0).to_pylist()}
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


def launch(start: int, op: str, thread: str = "calls", correlation: int = 0) -> PlaneEvent:
    return PlaneEvent("hipLaunch", start, start + 5, thread, correlation, hlo=op)


def shown(events: list[PlaneEvent]) -> list[tuple[str, str, int, int]]:
    return [(e.name, e.thread, e.start, e.end) for e in events]


def test_calls_go_to_the_line_whose_ranges_hold_most_of_them() -> None:
    """Two of three calls lie in ranges of `a`; the third is put together on that line. Half of the
    calls of which ranges are shown are not enough."""
    host = [PlaneEvent("x", 0, 100, "a"), PlaneEvent("x", 200, 300, "a")]
    calls = [launch(10, "x"), launch(295, "x"), launch(400, "x"), launch(500, "y")]
    moved, operators = with_operators(calls, [], host)
    assert {c.thread for c in moved} == {"a"}
    assert shown(operators) == [("x", "a", 400, 405), ("y", "a", 500, 505)]
    moved, operators = with_operators([*calls, launch(600, "x")], [], host)
    assert {c.thread for c in moved} == {"calls"}
    assert shown(operators) == [("x", "calls", 10, 405), ("y", "calls", 500, 505),
                                ("x", "calls", 600, 605)]  # fmt: skip


def test_a_call_is_in_the_last_range_that_began_before_it() -> None:
    """It may fill the range; one that ends behind it is outside."""
    host = [PlaneEvent("x", 0, 100, "a"), PlaneEvent("x", 10, 15, "a")]
    moved, operators = with_operators([launch(10, "x")], [], host)
    assert (moved[0].thread, operators) == ("a", [])
    moved, operators = with_operators([launch(11, "x")], [], host)
    assert shown(operators) == [("x", "calls", 11, 16)]


def test_kernels_name_the_operator_of_their_call() -> None:
    kernels = [PlaneEvent("k", 0, 1, correlation=4, hlo="x"),
               PlaneEvent("k", 0, 1, correlation=0, hlo="y"),
               PlaneEvent("k", 0, 1, correlation=5)]  # fmt: skip
    calls = [launch(10 * k, "", correlation=correlation) for k, correlation in enumerate((4, 0, 5))]
    calls.append(launch(40, "z", correlation=4))
    moved, operators = with_operators(calls, kernels, [])
    assert [c.hlo for c in moved] == ["x", "", "", "z"]
    assert shown(operators) == [("x", "calls", 0, 5), ("z", "calls", 40, 45)]
    assert {o.correlation for o in operators} == {-1}


def test_launches_are_put_together_as_long_as_their_operator_and_thread_last() -> None:
    calls = [launch(30, "x"), launch(10, "x"), launch(20, "x", "other"), launch(40, "y"),
             launch(50, ""), launch(60, "y")]  # fmt: skip
    _, operators = with_operators(calls, [], [])
    assert shown(operators) == [
        ("x", "calls", 10, 35), ("y", "calls", 40, 45), ("y", "calls", 60, 65),
        ("x", "other", 20, 25),
    ]  # fmt: skip
