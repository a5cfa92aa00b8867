"""What runs how long in each window, against every instant; and the same kept as a table."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from htk.base.schema import DERIVED
from htk.quantities.derived.window_times import KINDS, KindTimes, kind_times, rank_window_times
from tests.tables import make

KNOWN = [kind for kind in KINDS if kind != "other"]
LANES = [(rank, device, cycle) for rank in (0, 4) for device in (0, 1) for cycle in (0, 2)]
SPANS = st.lists(
    st.tuples(
        st.sampled_from(LANES), st.sampled_from(KINDS), st.integers(0, 25), st.integers(0, 9)
    ),
    max_size=12,
)


@given(SPANS)
def test_kinds_against_every_instant(spans: list[Any]) -> None:
    windows = [
        {"rank": r, "device": d, "cycle": c, "start_ns": low, "end_ns": low + 10}
        for low in (12, 2)
        for r, d, c in LANES
    ]
    rows = [
        {"rank": r, "device": d, "cycle": c, "kind": kind, "start_ns": s, "end_ns": s + n}
        for (r, d, c), kind, s, n in spans
    ]
    activities, of_ranks = make("activities", rows), make("rank_windows", windows)
    _check_every_instant(kind_times(activities, of_ranks), rows, windows)


@given(SPANS)
def test_a_table_of_windows_holds_their_times(spans: list[Any]) -> None:
    windows = [
        {"rank": r, "device": d, "cycle": c, "start_ns": low, "end_ns": low + 10}
        for low in (12, 2)
        for r, d, c in LANES
    ]
    rows = [
        {"rank": r, "device": d, "cycle": c, "kind": kind, "start_ns": s, "end_ns": s + n}
        for (r, d, c), kind, s, n in spans
    ]
    held = rank_window_times(make("activities", rows), make("rank_windows", windows))
    assert held.schema.equals(DERIVED["rank_window_times"])
    _check_every_instant(KindTimes.from_windows(held), rows, windows)


def _check_every_instant(
    times: KindTimes, rows: list[dict[str, Any]], windows: list[dict[str, Any]]
) -> None:
    for k, window in enumerate(windows):
        on = [
            {
                row["kind"]
                for row in rows
                if all(row[c] == window[c] for c in ("rank", "device", "cycle"))
                and row["start_ns"] <= t < row["end_ns"]
            }
            for t in range(window["start_ns"], window["end_ns"])
        ]
        assert times.total[k] == 10
        assert times.busy[k] == sum(bool(kinds) for kinds in on)
        assert times.idle[k] == 10 - times.busy[k]
        assert times.exactly("other")[k] == sum(kinds == {"other"} for kinds in on)
        for kind in KNOWN:
            assert times.any(kind)[k] == sum(kind in kinds for kinds in on)
        exposed = sum("comm" in kinds and "compute" not in kinds for kinds in on)
        assert times.exposed("comm", "compute")[k] == exposed
        alone = sum("memory" in kinds and not kinds & {"compute", "comm"} for kinds in on)
        assert times.exposed("memory", "compute", "comm")[k] == alone
        assert times.both("comm", "compute")[k] == sum({"comm", "compute"} <= k for k in on)
        just = sum(kinds - {"other"} == {"comm", "memory"} for kinds in on)
        assert times.exactly("comm", "memory")[k] == just
        for kind in KNOWN:
            assert times.added(kind)[k] == sum(
                max(
                    0,
                    min(row["end_ns"], window["end_ns"]) - max(row["start_ns"], window["start_ns"]),
                )
                for row in rows
                if row["kind"] == kind
                and all(row[c] == window[c] for c in ("rank", "device", "cycle"))
            )
