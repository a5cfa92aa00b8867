"""Times that move with anchors: as the anchors do, between them in proportion, never backwards."""

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htk
from htk.traces.trace.file import TraceFile
from htk.traces.trace.opening import open_trace
from htk.whatif.api import WhatIf
from htk.whatif.predicted_trace import (
    _find_anchors,
    _Moved,
    _select_rows,
    _time_nodes,
    _warp_times,
    codes_in,
)
from htk.whatif.predictions import NOTE
from tests.htk.whatif.simulated_job import written
from tests.thinned import thinned

BASE = 1_700_000_000_000_000_000


def warped(times: list[int], old: list[int], new: list[int]) -> list[int]:
    values = [np.array(x, np.int64) + BASE for x in (times, old, new)]
    return (_warp_times(*values) - BASE).tolist()  # type: ignore[no-any-return]


def test_by_hand() -> None:
    old, new = [100, 200, 400], [1000, 1100, 1500]
    assert warped([100, 200, 400], old, new) == new
    assert warped([150, 250, 300, 399], old, new) == [1050, 1200, 1300, 1498]
    assert warped([0, 99], old, new) == [900, 999], "before the first, by as much as that"
    assert warped([401, 1000], old, new) == [1501, 2100], "and behind the last"
    assert warped([5, 7], [], []) == [5, 7]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(-50, 150)), min_size=1, max_size=8))
def test_anchors_never_lead_backwards(pairs: list[tuple[int, int]]) -> None:
    old, new = _find_anchors(*(np.array(c, np.int64) for c in zip(*pairs, strict=True)))
    assert old.tolist() == sorted(o for o, _ in pairs)
    ordered = sorted(pairs)
    expected = [max(n for _, n in ordered[: k + 1]) for k in range(len(ordered))]
    assert new.tolist() == expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.data())
def test_order_stays(steps: list[int], data: st.DataObject) -> None:
    old = np.cumsum([0, *steps]).tolist()
    new = np.cumsum([data.draw(st.integers(0, 80)) for _ in old]).tolist()
    times = list(range(-5, old[-1] + 6))
    found = warped(times, old, new)
    assert found == sorted(found)
    for time, moved in zip(times, found, strict=True):
        k = max((k for k, o in enumerate(old) if o <= time), default=-1)
        if k < 0:
            expected = time + new[0] - old[0]
        elif k + 1 == len(old):
            expected = time + new[-1] - old[-1]
        else:
            share = (time - old[k]) / (old[k + 1] - old[k])
            expected = new[k] + share * (new[k + 1] - new[k])
        assert moved == pytest.approx(expected, abs=0.5 + 1e-6)


def covered(files: Iterable[TraceFile], step: str) -> dict[tuple[int | None, str], int]:
    """How many kernels each range on the GPU holds, within the step of that name."""
    held: dict[tuple[int | None, str], int] = {}
    for file in files:
        annotations, kernels = file.table("annotations"), file.table("kernels")
        ranges = annotations.filter(annotations["on_gpu"]).to_pylist()
        starts, ends = (kernels[name].to_numpy() for name in ("start_ns", "end_ns"))
        widest = max(
            (r for r in ranges if r["name"] == step), key=lambda r: r["end_ns"] - r["start_ns"]
        )
        for r in ranges:
            if widest["start_ns"] <= r["start_ns"] and r["end_ns"] <= widest["end_ns"]:
                is_within = (starts >= r["start_ns"]) & (ends <= r["end_ns"])
                name = (file.rank, r["name"])
                held[name] = max(held.get(name, 0), int(is_within.sum()))
    return held


def test_ranges_on_the_gpu_stretch_with_what_they_hold(tmp_path: Path) -> None:
    """In a step of twice the length each still holds its kernels, but for a few at its ends."""
    htk.whatif("sample").batch("2x").write(tmp_path / "predicted")
    predicted = open_trace(tmp_path / "predicted")
    (step,) = {a for a in predicted.tables["annotations"]["name"].to_pylist() if "Step#" in a}
    before, after = (covered(t.files, step) for t in (open_trace("sample"), predicted))
    assert {rank for rank, _ in before} == {0, 1} and before.keys() == after.keys()
    for name, count in before.items():
        assert after[name] == pytest.approx(count, abs=3), name
    assert all(count > 200 for (_, name), count in after.items() if name == step)


@pytest.mark.parametrize(
    "edit", thinned(["host=2x", "replace=gemm=4x", "no_data_wait=on", "batch=2x", "workers=2x"])
)
def test_the_written_step_takes_as_long_as_said(
    simulated: WhatIf, tmp_path: Path, edit: str
) -> None:
    """Also what comes before the first call of a step, where nothing recorded is moved."""
    name, _, value = edit.partition("=")
    asked = simulated.change(name, value)
    said = asked.answers()[0].step_ns
    assert said is not None and said != simulated.stage.step_ns
    asked.write(tmp_path / "predicted")
    (tmp_path / "predicted" / NOTE).unlink()
    read = WhatIf(open_trace(str(tmp_path / "predicted"))).stage
    assert read.step_ns == pytest.approx(said, rel=0.005)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> WhatIf:
    folder = tmp_path_factory.mktemp("simulated")
    job = {"nodes": 1, "layers": 2, "micro_batch": 4, "seq": 512, "steps": 3, "stacks": False}
    return WhatIf(open_trace(str(written(folder, strategy="ddp", **job))))


@pytest.mark.parametrize(("lead", "expected"), [(1.0, [80, 90]), (0.5, [90, 95]), (0.0, [100] * 2)])
def test_what_comes_before_the_first_call_is_nearer_to_it(lead: float, expected: list[int]) -> None:
    times, old, new = (np.array(values) for values in ([0, 10], [20, 40], [100, 120]))
    assert _warp_times(times, old, new, lead).tolist() == expected


def test_a_step_whose_parts_drift_apart_follows_the_observed_one() -> None:
    """Those that nothing binds to the others run further ahead with every repetition."""

    def times(ahead: int) -> list[int]:
        seen, steady = np.array([100, 200]), np.array([100, 200 - ahead])
        start: Any = SimpleNamespace(
            replayed=SimpleNamespace(time=seen, steady=steady, period_ns=150)
        )
        edited: Any = SimpleNamespace(time=seen + 7, steady=steady + 3)
        return _time_nodes(start, edited).tolist()  # type: ignore[no-any-return]

    assert times(100) == [103, 103]
    assert times(2000) == [107, 207]


def moved() -> _Moved:
    """Events of a file whose times begin at 1000 ns: as it was, moved, moved and stretched onto
    another stream, moved in front of the beginning, left out."""
    return _Moved(
        first=40,
        start=np.array([-1, 2500, 3000, 0, 9]),
        length=np.array([-1, -1, 400, 0, 9]),
        keep=np.array([True, True, True, True, False]),
        restreamed=np.array([False, False, True, False, False]),
        base_ns=1000,
    )


EVENT = {"ts": 7.25, "dur": 3.5, "tid": 5, "args": {"stream": 5, "ts": 1.0, "queued": 2}}


def test_an_event_keeps_all_it_says_but_its_times() -> None:
    text = json.dumps(EVENT).encode()
    after = [moved().event(row, text) for row in range(6)]
    assert after[4] is None
    told = [None if t is None else json.loads(t) for t in after]
    args = EVENT["args"]
    assert told[0] == told[5] == EVENT, "as it was; and behind the last that is known"
    assert told[1] == EVENT | {"ts": 1.5}
    on_another = {"ts": 2.0, "dur": 0.4, "tid": 9000}
    assert told[2] == EVENT | on_another | {"args": args | {"stream": 9000}}  # type: ignore[operator]
    assert told[3] == EVENT | {"ts": -1.0, "dur": 0}


def test_times_are_set_by_the_number_of_an_event() -> None:
    change = moved()
    change._set(np.array([41, 43]), np.array([50, 60]), np.array([55, 58]))
    change._set(np.array([40]), np.array([70]))
    assert change.start.tolist() == [70, 50, 3000, 60, 9]
    assert change.length.tolist() == [-1, 5, 400, 0, 9], "no event ends before it begins"


def test_rows_of_a_file_are_those_of_its_rank_and_cycle() -> None:
    table = pa.table({"rank": [0, 1, None, 1, 1], "cycle": [0, 0, 0, 1, 0]})
    rows = np.array([4, 3, 2, 1, 0])
    for rank, cycle, expected in ((1, 0, [0, 3]), (0, 0, [4]), (None, 0, [2]), (1, 1, [1])):
        part: Any = SimpleNamespace(rank=rank, cycle=cycle)
        assert _select_rows(part, table, rows).tolist() == expected
    other: Any = SimpleNamespace(rank=2, cycle=0)
    assert _select_rows(other, table, rows).tolist() == []


def test_texts_in_a_column() -> None:
    column = pa.chunked_array([pa.array(["ac2g", "fwdbwd", None, "ac2g"]).dictionary_encode()])
    assert codes_in(column, "ac2g").tolist() == [True, False, False, True]
    assert codes_in(column, "fwdbwd").tolist() == [False, True, False, False]
    assert codes_in(column, "other").tolist() == [False] * 4, "what is null is no text"
