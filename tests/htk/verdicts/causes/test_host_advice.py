"""Advice on recordings without GPU work: planted faults, each named with its time."""

from pathlib import Path
from typing import Any

import pytest

import htk
from htk.base.errors import MissingTable
from htk.verdicts.causes.exposed_communication import UNDETERMINED
from htk.verdicts.overview.summary import reach_verdict
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

SAMPLES = Path(__file__).parents[4] / "sample_traces"
LOADING = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
STEPS = 4


def _python(name: str, number: int, parent: int | None, ts: float, dur: float) -> Event:
    arguments = {"Python id": number, "Python parent id": parent}
    common = {"ph": "X", "cat": "python_function", "pid": 100, "tid": 1, "args": arguments}
    return {**common, "name": name, "ts": ts, "dur": dur}


def _gloo(ts: float, dur: float) -> list[Event]:
    """The call on the main thread, and gloo's own range on its."""
    sizes = {"Input Dims": [[1024]], "Input type": ["float"]}
    called = op("c10d::allreduce_", ts - 1, 1)
    return [{**called, "args": sizes}, {**span("gloo:all_reduce", ts, dur, tid=2), "args": sizes}]


def _job(folder: Path, *, loading: float = 0, function: float = 0, late: float = 0) -> htk.Trace:
    """Two ranks, four steps of 100 us: 60 of mm, 20 of relu, 10 of gloo; what is planted replaces
    mm. Rank 1 comes to each collective `late` us after rank 0, which waits so long."""
    for rank in (0, 1):
        events: list[Event] = []
        for k in range(STEPS):
            base = 100.0 * k
            rest = 60 - loading - function
            events += [step(k, base, 100), op("aten::relu", base + 60, 20)]
            events.append(op("aten::mm", base + loading + function, rest))
            if loading:
                events.append(op(LOADING, base, loading))
            if function:
                events.append(
                    _python("tokenize.py(7): encode", k + 1, None, base + loading, function)
                )
            ready = base + 85 - (0 if rank else late)
            events += _gloo(ready, base + 95 - ready)
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return htk.open(folder)


def _advice(trace: htk.Trace) -> dict[str, dict[str, Any]]:
    result = trace.recommendations()
    assert "no GPU work was recorded" in result.coverage["cannot_be_told"]
    assert result.coverage["recorded_window_ns"] == 1000 * 100 * STEPS
    rows = {row["finding"]: row for row in result.to_pylist()}
    assert sum(row["gain_ns"] or 0 for row in rows.values()) <= 1000 * 100 * STEPS
    return rows


def test_a_starved_loader(tmp_path: Path) -> None:
    first, *_ = _advice(_job(tmp_path, loading=30)).values()
    assert first["finding"] == "the step waits for data"
    assert (first["gain_ns"], first["gain_pct"]) == (1000 * 30 * STEPS, pytest.approx(30))
    assert first["event_names"] == LOADING
    assert first["end_ns"] - first["start_ns"] == 30_000


@pytest.mark.parametrize("prefix", ["aten::", ""])
def test_a_program_without_pytorch_is_not_told_of_its_options(prefix: str, tmp_path: Path) -> None:
    """The same host with operators of PyTorch, and with names of its own."""
    events: list[Event] = []
    for k in range(STEPS):
        events += [span("iteration", 100.0 * k, 100), op(f"{prefix}mm", 100.0 * k, 60)]
    write(tmp_path / "rank0.json", *events, **of_rank(0, 1))
    advice = " ".join(row["advice"] for row in htk.open(tmp_path).recommendations().to_pylist())
    assert "how many threads it may use" in advice
    for option in ("torch", "with_stack"):
        assert (option in advice) is bool(prefix)


def test_a_python_function(tmp_path: Path) -> None:
    trace = _job(tmp_path, function=25)
    first, *_ = _advice(trace).values()
    assert first["finding"] == "one Python function takes much of the time"
    assert (first["gain_ns"], first["event_names"]) == (1000 * 25 * STEPS, "tokenize.py(7): encode")
    hot = trace.python_hotspots(n=1).to_pylist()[0]
    assert (hot["function"], hot["python_ns"]) == ("tokenize.py(7): encode", 2 * 1000 * 25 * STEPS)


def test_a_late_rank_over_gloo(tmp_path: Path) -> None:
    """Rank 0 waits 24 us in each of its collectives: a mean of 12 over the two."""
    first, *_ = _advice(_job(tmp_path, late=24)).values()
    assert first["finding"] == "ranks wait for each other"
    assert first["gain_ns"] == 1000 * 12 * STEPS
    assert first["evidence"].startswith(f"rank 1 comes last to {STEPS} of {STEPS} collectives")
    assert (first["rank"], first["event_names"]) == (1, "gloo:all_reduce")


def test_everything_at_once_is_not_offered_twice(tmp_path: Path) -> None:
    rows = _advice(_job(tmp_path, loading=20, function=15, late=24))
    gains = {finding: row["gain_ns"] // (1000 * STEPS) for finding, row in rows.items()
             if row["gain_ns"]}  # fmt: skip
    assert gains == {
        "the step waits for data": 20,
        "one Python function takes much of the time": 15,
        "ranks wait for each other": 12,
    }


def test_an_operator_that_takes_most(tmp_path: Path) -> None:
    rows = _advice(_job(tmp_path))
    (row,) = rows.values()
    assert row["finding"] == "one operator takes much of the operators' time"
    assert row["gain_ns"] is None and row["event_names"] == "aten::mm"
    mm = _job(tmp_path).op_breakdown().to_pylist()
    own = {r["op"]: r["cpu_self_ns"] for r in mm}
    share = 100 * own["aten::mm"] / sum(own.values())
    assert row["evidence"].startswith(f"aten::mm takes {share:.0f} %")


def test_the_summary_gives_the_same(tmp_path: Path) -> None:
    trace = _job(tmp_path, loading=30, late=24)
    summary = reach_verdict(trace)
    advised = trace.recommendations().to_pylist()
    assert [c.finding for c in summary.causes] == [r["finding"] for r in advised][:3]
    # gloo runs 10 us of each 100 on rank 1, 34 on rank 0; for 10 of them operators run too
    said = "collectives (gloo) run beside no operator in 12 % of the time"
    assert dict(summary.next)["comm_summary"] == said


def test_collectives_that_go_on_after_the_last_operator(tmp_path: Path) -> None:
    """Operators for 100 us of 400; gloo runs from 50 to 250 and from 200 to 400, each call
    made by an operator of 1 us: alone for 299."""
    events = [op("aten::mm", 0, 100), *_gloo(50, 200), *_gloo(200, 200)]
    write(tmp_path / "rank0.json", *events, **of_rank(0, 1))
    told = reach_verdict(htk.open(tmp_path))
    said = "collectives (gloo) run beside no operator in 75 % of the time"
    assert dict(told.next)["comm_summary"] == said
    (cause,) = (c for c in told.causes if c.finding == UNDETERMINED)
    assert cause.time_ns == 299_000
    assert cause.evidence == (
        "in 75 % of the time collectives run, and no operator; no match on other ranks"
    )


def test_a_sliver_of_gpu_work(tmp_path: Path) -> None:
    """2 us of GPU work in a step of 10 s: the host's operators, not the idle GPU."""
    events = [step(1, 0, 10e6), op("aten::mm", 0, 9e6), launch(1, 5), kernel("fill", 20, 2, 1)]
    result = htk.open(write(tmp_path / "a.json", *events)).recommendations()
    assert "next to no GPU work was recorded" in result.coverage["cannot_be_told"]
    assert [r["event_names"] for r in result.to_pylist()] == ["aten::mm"]


@pytest.mark.parametrize("sample", ["nccl_debug", "memory_snapshot"])
def test_nothing_to_advise_on(sample: str) -> None:
    with pytest.raises(MissingTable, match="neither was recorded"):
        htk.open(SAMPLES / sample).recommendations()


@pytest.mark.parametrize("sample", ["transformer", "ddp", "fsdp2", "compiled"])
def test_on_real_recordings_gains_are_less_than_the_time(sample: str) -> None:
    result = htk.open(SAMPLES / "recorded" / sample).recommendations()
    gains = [row["gain_ns"] or 0 for row in result.to_pylist()]
    assert sum(gains) <= result.coverage["recorded_window_ns"]
