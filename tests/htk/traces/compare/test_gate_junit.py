"""The gate's judgement as JUnit XML, read by the standard library."""

from xml.etree import ElementTree

from htk.traces.compare.gate_junit import render_junit
from htk.traces.compare.regression import Judgement
from htk.traces.compare.rules import parse_rule

JUDGED = [
    Judgement(parse_rule("step_time>5%"), "failed", 100e6, 110e6, 10.0, 1.0, "10 % <slower>"),
    Judgement(parse_rule("idle>1ms"), "passed", 1e6, 1e6, 0.0, 1.0, ""),
    Judgement(
        parse_rule("each kernel>5%"), "unsure", 2e6, 2.1e6, 5.0, 9.0, "noise", name="a&b\x1b"
    ),
]


def counts(strictly: bool) -> tuple[list[str | None], list[tuple[str, ...]]]:
    (suite,) = ElementTree.fromstring(render_junit(JUDGED, strictly))
    numbers = [suite.get(name) for name in ("tests", "failures", "skipped", "errors")]
    return numbers, [tuple(part.tag for part in case) for case in suite]


def test_one_case_a_rule() -> None:
    assert counts(strictly=False) == (
        ["3", "1", "1", "0"],
        [("failure", "system-out"), ("system-out",), ("skipped", "system-out")],
    )


def test_strictly_what_is_open_fails() -> None:
    numbers, parts = counts(strictly=True)
    assert numbers == ["3", "2", "0", "0"] and parts[2] == ("failure", "system-out")


def test_names_cannot_break_the_file() -> None:
    (suite,) = ElementTree.fromstring(render_junit(JUDGED, strictly=False))
    failure = suite[0].find("failure")
    assert failure is not None and failure.get("message") == "failed: 10 % <slower>"
    assert failure.text == "100 ms -> 110 ms"
    assert "\x1b" not in (suite[2].findtext("system-out") or "")
