"""The page of benchmarks says what the figures say."""

import xml.etree.ElementTree as xml
from typing import Any

import pytest

from bench.commands import Contestant, take_turns
from bench.page import written

RAN = {
    "date": "2026-11-22",
    "cores": 2,
    "machine": "x86_64",
    "python": "3.11.7",
    "load": [1.0, 2.5],
}


def _kept(figures: Any) -> dict[str, Any]:
    return {"ran": RAN, "figures": figures}


def test_a_command_stands_with_its_ratios_and_a_missing_tool_with_none() -> None:
    row = {
        "question": "kernel-top",
        "input": "one large trace",
        "times_imports": {"imports": 1.0, "cold": 20.0, "warm": 8.0, "again": 1.5, "HTA": 160.0},
    }
    starting = {"times_imports": {"imports": 1.0, "htk --help": 2.5}}
    page, picture = written({"commands": _kept({"commands": [row], "starting": starting})})
    line = next(line for line in page.splitlines() if "kernel-top" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2:] == ["20.0", "8.0", "1.5", "160.0", "–", "8.0 / 20.0", "–"]
    assert "`htk --help` 2.5" in page and "load 1 to 2.5" in page
    assert "## Reading a trace" not in page and not picture


def test_rows_by_anything_stand_beside_kernel_top() -> None:
    ratios = {"kernel": 1.0, "source": 1.52}
    page, _ = written({"rows_by": _kept({"times_kernel_top": ratios})})
    assert "| `kernel` | `source` |" in page and "| 1.00 | 1.52 |" in page
    goal = next(line for line in page.splitlines() if "dearest" in line)
    assert "1.2 times off" in goal


def test_the_picture_puts_equal_factors_at_equal_distances() -> None:
    def part(seconds: float) -> dict[str, Any]:
        costs = {"analyses_s": {"kernel_top": seconds}, "shared_s": {}}
        return costs | {"slowest_s": ["kernel_top", seconds], "most_mb": ["kernel_top", 10]}

    sizes = {"1000 events": part(0.01), "10000 events": part(0.1), "100000 events": part(1.0)}
    figures = {"analyses": sizes, "growth_of_analyses": {"kernel_top": 1.0}}
    page, picture = written({"analyses": _kept(figures)})
    assert "| 10000 events | 1 | 0.10 | kernel_top 0.10 | 10 MB |" in page
    line = next(e for e in xml.fromstring(picture) if e.tag.endswith("polyline"))
    points = [tuple(map(int, p.split(","))) for p in line.attrib["points"].split()]
    for axis in (0, 1):
        first, second = (points[k + 1][axis] - points[k][axis] for k in (0, 1))
        assert first == pytest.approx(second, abs=1) and first


def test_contestants_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def run(words: tuple[str, ...], environment: dict[str, str]) -> float:
        order.append(words[0])
        return float(len(order))

    monkeypatch.setattr("bench.commands._run", run)
    contestants = {
        name: Contestant(lambda k, name=name: (f"{name}{k}",))  # type: ignore[misc]
        for name in ("a", "b")
    }
    take_turns(contestants, 2)
    assert order == ["a0", "b0", "a1", "b1"]
    assert contestants["b"].seconds == [2.0, 4.0]


def test_the_dashboard_s_latencies_stand_as_they_were_seen() -> None:
    spread = {"p50_ms": 812, "p95_ms": 1204, "of": 5}
    kind = {"requests": 40, "p50_ms": 11.0, "p95_ms": 52.4}
    users = {
        "users": 20,
        "requests": 812,
        "failures": 0,
        "by_kind": {"timeline": kind},
        "memory_mb": {"before": 406.4, "half_way": 410.0, "after": 415.2},
    }
    figures = {"browser": {"first page, cold browser: first chart": spread}, "users": users}
    page, _ = written({"dashboard": _kept(figures)})
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    assert ["first page, cold browser: first chart", "812", "1204", "5"] in rows
    assert ["timeline", "11", "52", "40"] in rows
    assert (
        "20 people: 812 requests, 0 failed; the server held 406 MB before and 415 MB after." in page
    )
