"""Recordings of torch 2.15's second back end beside Kineto's of the same job."""

from pathlib import Path

import pytest

import htk
from htk.faces.notebook.session import Session

FORMS = ("plain", "annot", "env", "kernel_py_stacks", "pftrace")
_ROUNDED_NS = 200  # of times that are kept as doubles
_TIMES = (
    "total_ns", "busy_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "memory_ns", "idle_ns",
)  # fmt: skip


@pytest.fixture(scope="module")
def kineto(shared: Path) -> Session:
    return htk.open(shared / "traces/torch215/orig", cache=False)


@pytest.fixture(scope="module", params=FORMS)
def second(request: pytest.FixtureRequest, shared: Path) -> Session:
    return htk.open(shared / "traces/torch215" / request.param, cache=False)


def test_times_are_equal(kineto: Session, second: Session) -> None:
    (ours,), (theirs,) = (session.time_breakdown().to_pylist() for session in (second, kineto))
    for column in _TIMES:
        assert abs(ours[column] - theirs[column]) <= _ROUNDED_NS, column


def test_overlap_is_equal(kineto: Session, second: Session) -> None:
    (ours,), (theirs,) = (
        session.comm_compute_overlap().to_pylist() for session in (second, kineto)
    )
    assert abs(ours["overlap_ns"] - theirs["overlap_ns"]) <= _ROUNDED_NS


def test_copies_are_equal(kineto: Session, second: Session) -> None:
    """Perfetto's form tells no direction; kinds of memory are not those of this job."""
    ours, theirs = (count_copies(session) for session in (second, kineto))
    if "copy" in ours:
        assert ours["copy"] == tuple(map(sum, zip(*theirs.values(), strict=True)))
    else:
        assert ours == theirs


def count_copies(session: Session) -> dict[str, tuple[int, int]]:
    """Return the number and the time of copies of each direction."""
    copies = session.memory_bandwidth().to_pandas().groupby("direction")
    totals = copies[["count", "total_ns"]].sum()
    return {direction: (int(row.iloc[0]), int(row.iloc[1])) for direction, row in totals.iterrows()}


def test_critical_paths_are_equal(kineto: Session, second: Session) -> None:
    """The times of a row add up roundings, one of each piece of the path."""
    ours, theirs = (
        {row["what"]: row for row in session.critical_path().to_pylist()}
        for session in (second, kineto)
    )
    assert ours.keys() == theirs.keys()
    for what, row in ours.items():
        assert row["count"] == theirs[what]["count"], what
        assert abs(row["path_ns"] - theirs[what]["path_ns"]) <= _ROUNDED_NS * row["count"], what
