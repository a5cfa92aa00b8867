"""The gate's judgement as JUnit XML, which CI systems show among a job's tests."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from htk.base.core.humanize import format_duration, make_visible
from htk.traces.compare.regression import Judgement


def render_junit(judged: Sequence[Judgement], strictly: bool) -> bytes:
    """Return one test case for each rule.

    A rule that could not be judged is a skipped test; with `strictly` it is a failed one.
    """
    failed = [j for j in judged if _is_failing(j, strictly)]
    skipped = [j for j in judged if j.verdict != "passed" and j not in failed]
    suite = Element(
        "testsuite",
        name="htk gate",
        tests=str(len(judged)),
        failures=str(len(failed)),
        skipped=str(len(skipped)),
        errors="0",
    )
    for judgement in judged:
        case = SubElement(
            suite, "testcase", classname="htk.gate", name=make_visible(judgement.rule.text)
        )
        times = f"{format_duration(judgement.base_ns)} -> {format_duration(judgement.new_ns)}"
        if judgement.verdict != "passed":
            kind = "failure" if judgement in failed else "skipped"
            message = f"{judgement.verdict}: {make_visible(judgement.reason)}"
            SubElement(case, kind, message=message).text = times
        SubElement(case, "system-out").text = f"{make_visible(judgement.name)} {times}".strip()
    suites = Element("testsuites")
    suites.append(suite)
    text: bytes = tostring(suites, encoding="utf-8", xml_declaration=True)
    return text


def _is_failing(judgement: Judgement, strictly: bool) -> bool:
    return judgement.verdict == "failed" or (strictly and judgement.verdict != "passed")
