"""Iterations of a server, found by the ranges round them."""

import re

import pytest

from htk.base.errors import MissingTable, UsageError
from htk.quantities.measures.server_iterations import ServerIterations, pattern_reader
from tests.tables import make


def ranges(*spans: tuple[str, int, int, int]) -> list[dict]:
    return [
        {"name": name, "on_gpu": False, "rank": rank, "start_ns": start, "end_ns": end}
        for name, rank, start, end in spans
    ]


def test_by_rank_and_in_order_of_time() -> None:
    """The form that tells most is read alone; what runs on the GPU is a copy."""
    rows = ranges(
        ("step[DECODE bs=4]", 0, 21, 29),
        ("execute_context_0(0)_generation_5(5)", 1, 40, 50),
        ("execute_context_0(0)_generation_4(4)", 0, 20, 30),
        ("execute_context_1(9)_generation_0(0)", 0, 5, 9),
    )
    rows.append({**rows[2], "on_gpu": True})
    iterations = ServerIterations.from_annotations(make("annotations", rows))
    assert iterations.form == "execute_…"
    assert [(r, s) for r, s in zip(iterations.rank, iterations.start, strict=True)] == [
        (0, 5), (0, 20), (1, 40)
    ]  # fmt: skip
    assert [fact.answers.requests for fact in iterations.facts] == [0, 4, 5]


def test_what_each_launches() -> None:
    rows = ranges(("step[DECODE bs=1]", 0, 10, 20), ("step[DECODE bs=1]", 0, 20, 30))
    iterations = ServerIterations.from_annotations(make("annotations", rows))
    launched = [9, 10, 19, 20, 30]
    kernels = make("kernels", [{"start_ns": t + 100, "end_ns": t + 101} for t in launched])
    links = make("kernel_links", [{"launch_start_ns": t} for t in launched])
    assert iterations.launching(kernels, links).tolist() == [-1, 0, 0, 1, -1]


def test_named_groups_of_a_pattern() -> None:
    read = pattern_reader(re.compile(r"turn (?P<mode>\w+) (?P<prefill>\d+)\+(?P<decode>\d+)"))
    fact = read("turn extend 2+7")
    assert (fact.phase, fact.prompts.requests, fact.answers.requests) == ("prefill", 2, 7)
    assert read("turn other 2+7").phase == "mixed"


def test_what_is_no_server_and_no_pattern() -> None:
    named = make("annotations", ranges(("training", 0, 1, 2)))
    with pytest.raises(MissingTable, match="no ranges round the iterations"):
        ServerIterations.from_annotations(named)
    with pytest.raises(UsageError, match="not a regular expression"):
        ServerIterations.from_annotations(named, "(")


def test_a_capture_serves_nobody() -> None:
    captures = make("annotations", ranges(("capture_32_FULL", 0, 0, 9)))
    with pytest.raises(MissingTable, match=r"captures its graphs \(capture_32_FULL\)"):
        ServerIterations.from_annotations(captures)
