"""Times that move with anchors: as the anchors do, between them in proportion, never backwards."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import htk
from htk.trace.file import TraceFile
from htk.trace.opening import open_trace
from htk.whatif.predicted_trace import _anchors, _warped

BASE = 1_700_000_000_000_000_000


def warped(times: list[int], old: list[int], new: list[int]) -> list[int]:
    values = [np.array(x, np.int64) + BASE for x in (times, old, new)]
    return (_warped(*values) - BASE).tolist()  # type: ignore[no-any-return]


def test_by_hand() -> None:
    old, new = [100, 200, 400], [1000, 1100, 1500]
    assert warped([100, 200, 400], old, new) == new
    assert warped([150, 250, 300, 399], old, new) == [1050, 1200, 1300, 1498]
    assert warped([0, 99], old, new) == [900, 999], "before the first, by as much as that"
    assert warped([401, 1000], old, new) == [1501, 2100], "and behind the last"
    assert warped([5, 7], [], []) == [5, 7]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(-50, 150)), min_size=1, max_size=8))
def test_anchors_never_lead_backwards(pairs: list[tuple[int, int]]) -> None:
    old, new = _anchors(*(np.array(c, np.int64) for c in zip(*pairs, strict=True)))
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
