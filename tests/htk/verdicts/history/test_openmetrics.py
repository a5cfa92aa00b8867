"""Numbers to alert on: each family as OpenMetrics wants it, each value that of the summary."""

import json
import re
from collections import defaultdict

import pytest

from htk.traces.trace.opening import open_trace
from htk.verdicts.history.openmetrics import MeasuredRun, measure_run, write_openmetrics
from htk.verdicts.overview.summary import reach_verdict
from tests.conftest import ROOT

_LABEL = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
_SAMPLE = re.compile(rf"([a-z_0-9]+)\{{({_LABEL}(?:,{_LABEL})*)\}} (-?[0-9.e+-]+)")


def read_samples(text: str) -> dict[str, dict[str, float]]:
    """Return the samples of each family, by labels; a family's lines must stand together."""
    lines = text.splitlines()
    assert lines.pop() == "# EOF" and text.endswith("\n")
    families: dict[str, dict[str, float]] = defaultdict(dict)
    begun: list[str] = []
    for line in lines:
        if line.startswith("# TYPE"):
            begun.append(line.split()[2])
            continue
        if line.startswith("#"):
            assert line.split()[2] == begun[-1]
            continue
        parts = _SAMPLE.fullmatch(line)
        assert parts is not None, line
        assert parts[1] == begun[-1]
        assert parts[2] not in families[parts[1]], "a sample stands once"
        families[parts[1]][parts[2]] = float(parts[3])
    assert len(begun) == len({*begun}) == len(families)
    return families


def test_values_are_in_units_of_their_names() -> None:
    run = MeasuredRun(
        'a "b"\\c\nd',
        {"step_time_ns": 412_000_000, "step_time_ns_p90": None, "mfu_pct": 41.5, "slowdown": 1.25},
        [
            {"part": "time", "name": "compute", "share_pct": 70.0, "analysis": "kernel_top"},
            {"part": "time", "name": "exposed wait", "share_pct": 12.0, "analysis": "stragglers"},
            {"part": "time", "name": "exposed transfer", "share_pct": 8.0, "analysis": "overlap"},
            {"part": "time", "name": "idle: a", "share_pct": 6.0, "analysis": "idle_breakdown"},
            {"part": "time", "name": "idle: b", "share_pct": 4.0, "analysis": "idle_breakdown"},
            {"part": "cause", "name": "x", "analysis": "gpu_speed", "step_gain_ns": 5_000_000},
            {"part": "cause", "name": "y", "analysis": "stalls", "step_gain_ns": None},
            {"part": "next", "name": "kernel_top", "analysis": "kernel_top"},
        ],
        {"rank": 3, "cost_to_others_ns": 2_000_000_000},
    )
    families = read_samples(write_openmetrics([run]))
    label = 'run="a \\"b\\"\\\\c\\nd"'
    assert families["htk_step_seconds"] == {label: 0.412}
    assert "htk_step_p90_seconds" not in families, "what is not known is not there"
    assert families["htk_mfu_ratio"] == {label: 0.415}
    assert families["htk_straggler_slowdown_ratio"] == {label: 1.25}
    shares = {"compute": 0.7, "exposed_comm": 0.2, "idle": 0.1}
    expected = {f'{label},part="{part}"': share for part, share in shares.items()}
    assert families["htk_time_share_ratio"] == pytest.approx(expected)
    assert families["htk_cause_gain_seconds"] == {f'{label},cause="gpu_speed"': 0.005}
    assert families["htk_slowest_rank"] == {label: 3}
    assert families["htk_slowest_rank_cost_seconds"] == {label: 2}


def test_a_recording_tells_what_its_summary_does() -> None:
    trace = open_trace("sample")
    judged = reach_verdict(trace)
    families = read_samples(write_openmetrics([measure_run(trace, "sample")]))
    step = families["htk_step_seconds"]['run="sample"']
    assert step == pytest.approx((judged.step_ns or 0) / 1e9, rel=1e-6)
    shares = families["htk_time_share_ratio"]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-6)
    compute = next(share.pct for share in judged.shares if share.name == "compute")
    assert shares['run="sample",part="compute"'] == pytest.approx(compute / 100, rel=1e-6)
    gains = families["htk_cause_gain_seconds"]
    first = judged.causes[0]
    key = f'run="sample",cause="{first.analysis}"'
    assert gains[key] == pytest.approx((first.gain_ns or 0) / 1e9, rel=1e-6)
    assert families["htk_slowest_rank"] == {'run="sample"': 1}, "the one that was made slow"


def test_families_of_several_runs_stand_together() -> None:
    runs = [MeasuredRun(name, {"step_time_ns": 1e9}, []) for name in ("a", "b")]
    assert read_samples(write_openmetrics(runs))["htk_step_seconds"] == {'run="a"': 1, 'run="b"': 1}


def test_the_dashboard_of_the_docs_asks_for_gauges_that_exist() -> None:
    board = json.loads((ROOT / "docs/grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = {query.partition("{")[0] for query in queries}
    listed = {*re.findall(r"`(htk_[a-z0-9_]+)`", (ROOT / "docs/history.md").read_text())}
    text = (ROOT / "htk/verdicts/history/openmetrics.py").read_text()
    written = {*re.findall(r'"(htk_[a-z0-9_]+)"', text)}
    assert asked <= written == listed
