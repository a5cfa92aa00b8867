"""Steps of equal number in two cycles of a rank are two steps, in every analysis that has steps.

Each file of the sample is written twice into one, the second time 10 s later and at half the speed.
What each cycle answers there is what it answers as a recording of its own.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import htk
from htk import analyses
from htk.analyses import ANALYSES
from htk.answers.ask import ask_trace
from htk.answers.output.coverage_text import coverage_lines
from htk.base.schema import ABSOLUTE_TIMES
from htk.faces.cli.commands.trim import command as trim
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.summary import reach_verdict

SAMPLE = Path(htk.__file__).parent / "traces/sample"
_LATER_US = 10_000_000
_STEPPED = [n for n in ANALYSES if "cycle" in analyses.find_analysis(n).returns.names]
# Columns that do not depend on the other cycle, of what compares all steps with each other.
_ALONE = {
    "step_variance": ("rank", "device", "step", "complete", "duration_ns"),
    "gpu_speed": ("rank", "device", "step"),
}
_OF_BOTH_CYCLES = ("clock_alignment",)  # a rank has one clock
_UNANSWERED = ("pipeline_bubble", "change_points")  # no pipeline; too few steps in a cycle alone
_OF_BOTH = ("cycle", "start_ns", "device_time_pct")  # the last is of the time of both


def _events(content: dict[str, Any], times: int, later: int) -> list[dict[str, Any]]:
    events = []
    begin = min(float(e["ts"]) for e in content["traceEvents"] if e["ph"] != "M")
    for event in content["traceEvents"]:
        if event["ph"] == "M":
            continue
        moved = {**event, "ts": begin + times * (float(event["ts"]) - begin) + later}
        if "dur" in event:
            moved["dur"] = times * float(event["dur"])
        events.append(moved)
    return events


def _opened(folder: Path) -> Trace:
    return open_trace(folder, OpenOptions(cache=False))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trace, list[Trace]]]:
    """Both cycles in one file of each rank, and each cycle in files of its own."""
    folders = [tmp_path_factory.mktemp(name) for name in ("both", "first", "second")]
    for path in sorted(SAMPLE.glob("*.json.gz")):
        content = json.loads(gzip.decompress(path.read_bytes()))
        marks = [event for event in content["traceEvents"] if event["ph"] == "M"]
        cycles = _events(content, 1, 0), _events(content, 2, _LATER_US)
        for folder, events in zip(folders, ([*cycles[0], *cycles[1]], *cycles), strict=True):
            written = {**content, "traceEvents": [*marks, *events]}
            (folder / path.name.removesuffix(".gz")).write_text(json.dumps(written))
    yield _opened(folders[0]), [_opened(folder) for folder in folders[1:]]


def _asked(trace: Trace, name: str) -> list[dict[str, Any]]:
    options = analyses.find_analysis(name).options
    wanted: dict[str, Any] = {"per": "step"} if "per" in options else {}
    if "n" in options:
        wanted["n"] = 0
    return ask_trace(trace, name, **wanted).to_pylist()


def _comparable(name: str, rows: list[dict[str, Any]], cycle: int) -> list[str]:
    """Rows of a cycle, without what depends on the other, or on when time begins."""
    columns = _ALONE.get(name) or [k for k in rows[0] if k not in _OF_BOTH]
    kept = ({k: row[k] for k in columns} for row in rows if row["cycle"] == cycle)
    return sorted(json.dumps({k: _rounded(v) for k, v in row.items()}) for row in kept)


def _rounded(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", [n for n in _STEPPED if n not in _UNANSWERED])
def test_each_cycle_answers_as_by_itself(name: str, recordings: tuple[Trace, list[Trace]]) -> None:
    both, alone = recordings
    rows = _asked(both, name)
    for cycle, trace in enumerate(alone):
        expected = _comparable(name, _asked(trace, name), 0)
        assert expected
        assert _comparable(name, rows, cycle) == expected


def test_what_has_steps_has_cycles() -> None:
    """Of a whole job's rows there is one recording."""
    stepped = {n for n in ANALYSES if "step" in analyses.find_analysis(n).returns.names}
    assert stepped - set(_STEPPED) == {"straggler_slowdown"}


def test_a_critical_path_is_of_one_cycle(recordings: tuple[Trace, list[Trace]]) -> None:
    """The second is the longer one, and twice as long as the first."""
    both, (first, second) = recordings
    result = ask_trace(both, "critical_path", step=11)
    assert result.coverage["cycle"] == 1
    expected = ask_trace(second, "critical_path", step=11)
    assert "cycle" not in expected.coverage
    assert result.coverage["step_ns"] == expected.coverage["step_ns"]
    assert (
        result.coverage["step_ns"]
        == 2 * ask_trace(first, "critical_path", step=11).coverage["step_ns"]
    )
    columns = ("what", "name", "rank", "count", "path_ns", "path_pct", "event", "observed_pct")
    rows, wanted = (
        [[row[c] for c in columns] for row in answer.to_pylist()] for answer in (result, expected)
    )
    assert rows == wanted


def test_units_are_numbered_within_their_own_step(
    recordings: tuple[Trace, list[Trace]],
) -> None:
    """Pooled over steps, each unit has as many collectives as both cycles together."""
    both, alone = recordings
    columns = ("type", "phase", "order", "unit", "unit_bytes")

    def units(trace: Trace) -> dict[tuple[Any, ...], int]:
        rows = ask_trace(trace, "fsdp_units").to_pylist()
        return {tuple(row[c] for c in columns): row["count"] for row in rows}

    first = units(alone[0])
    assert first and first == units(alone[1])
    assert units(both) == {key: 2 * count for key, count in first.items()}


def test_a_summary_counts_the_steps_of_both(recordings: tuple[Trace, list[Trace]]) -> None:
    both, alone = recordings
    assert reach_verdict(both).steps == sum(reach_verdict(trace).steps for trace in alone)


@pytest.mark.parametrize("name", [n for n in ANALYSES if n not in _OF_BOTH_CYCLES])
def test_a_chosen_cycle_answers_as_by_itself(
    name: str, recordings: tuple[Trace, list[Trace]]
) -> None:
    """Whole answers, but for the numbers of events in their file."""
    both, alone = recordings
    for cycle, trace in enumerate(alone):
        expected, answered = (_all_of(t, name) for t in (trace, both.sel(cycles=[cycle])))
        assert answered == expected


def _all_of(trace: Trace, name: str) -> Any:
    try:
        result = ask_trace(trace, name)
    except htk.HtkError as error:
        return type(error), str(error)
    left_out = {"cycle", "event", "match", *ABSOLUTE_TIMES}
    left_out |= {column for column in result.table.column_names if column.endswith("_row")}
    return [
        {k: _rounded(v) for k, v in row.items() if k not in left_out} for row in result.to_pylist()
    ]


def test_steps_of_several_cycles_are_told(recordings: tuple[Trace, list[Trace]]) -> None:
    both, alone = recordings
    facts = ask_trace(both.sel(steps=[11]), "kernel_top").coverage
    assert facts["cycles_of_steps"] == [0, 1]
    assert coverage_lines(facts)[1].strip() == (
        "these steps are in 2 cycles of a rank, and all are used; choose with --cycles 0..1"
    )
    for trace in (both, both.sel(steps=[11], cycles=[1]), alone[1].sel(steps=[11])):
        assert "cycles_of_steps" not in ask_trace(trace, "kernel_top").coverage
    with pytest.raises(htk.HtkError, match=r"nothing within cycles 2 \(of 0..1\)"):
        both.sel(cycles=[2])


def test_trimmed_to_a_step_of_one_cycle(
    recordings: tuple[Trace, list[Trace]], tmp_path: Path
) -> None:
    both, alone = recordings
    for number, cycles in enumerate((("0",), ("1",), ("0", "1"))):
        files = [part.file for part in both.files if part.cycle == 0]
        target = tmp_path / str(number)
        arguments = [*files, "--steps", "11", "--cycles", ",".join(cycles), "-o", str(target)]
        outcome = CliRunner().invoke(trim, [*arguments, "--no-cache"], catch_exceptions=False)
        assert outcome.exit_code == 0, outcome.output
        kept = _opened(target)
        expected = sum(alone[int(c)].sel(steps=[11]).tables["kernels"].num_rows for c in cycles)
        assert kept.tables["kernels"].num_rows == expected
        assert len(kept.cycles) == len(cycles)
