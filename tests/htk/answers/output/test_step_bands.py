"""Amounts of many ranks over time as bands: cases worked out by hand, and a twin by brute force."""

from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.answers.output import step_bands as bands
from htk.answers.output.step_bands import Curve, band_of, curves_of, groups_of
from htk.answers.output.tokens import LIGHT


def curve(rank: int, *points: tuple[float, float], recording: int = 0, series: str = "") -> Curve:
    times, values = np.array(points, float).T
    return Curve(series, rank, recording, times, values)


def test_a_band_by_hand() -> None:
    """Three ranks: at 2 the second rises, at 3 the third falls, which ends at 3; all end by 4."""
    curves = [
        curve(0, (0, 10), (4, 10)),
        curve(1, (0, 10), (2, 16), (4, 16)),
        curve(2, (0, 10), (3, 1)),
    ]
    (piece,) = band_of(curves)
    assert piece[0] == pytest.approx([0, 2, 3, 3, 4])
    assert piece[1:].tolist() == [
        [10, 10, 1, 10, 10],  # lowest; the third is not recorded after 3
        [10, 10, 10, 13, 13],  # median; of two ranks their mean
        [10, 16, 16, 16, 16],  # highest
    ]


def test_nothing_is_drawn_between_recordings() -> None:
    """Neither between two recordings of a rank, nor where no rank of a recording was recorded."""
    curves = [
        curve(0, (0, 1), (1, 2)),
        curve(1, (5, 3), (6, 4)),
        curve(0, (9, 7), recording=1),
    ]
    assert [piece[0].tolist() for piece in band_of(curves)] == [[0, 1], [5, 6], [9]]
    (line,) = bands.step_bands([curve(0, (0, 1), (1, 2)), curves[2]], LIGHT, "GiB")
    assert list(line.x) == [0, 1, None, 9] and list(line.y) == [1, 2, None, 7]


@pytest.mark.parametrize("most", [1000, 40])
def test_against_a_loop(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every instant between changes; of too many times the band still holds every curve, and
    is as high and as low as they are."""
    monkeypatch.setattr(bands, "_MOST_TIMES", most)
    random = np.random.default_rng(5)
    curves = []
    for rank in range(6):
        times = np.sort(random.choice(1000, 30, replace=False)).astype(float)
        curves.append(Curve("", rank, 0, times, random.integers(0, 50, 30).astype(float)))
    (piece,) = band_of(curves)
    times, lowest, middle, highest = piece
    instants = np.unique(np.concatenate([c.times for c in curves]))
    for at in [*instants, *(instants[:-1] + 0.5)]:
        now = [c.values[c.times <= at][-1] for c in curves if c.times[0] <= at <= c.times[-1]]
        k = np.flatnonzero(times <= at)[-1]
        if most == 1000:
            assert [lowest[k], middle[k], highest[k]] == [min(now), median(now), max(now)]
        assert lowest[k] <= min(now) <= max(now) <= highest[k]
    assert highest.max() == max(c.values.max() for c in curves)
    assert lowest.min() == min(c.values.min() for c in curves)
    assert len(times) <= most


def test_ranks_that_do_the_same_are_one_group() -> None:
    """1 % more or somewhat later is the same; another height, mean or series is not."""
    same = [curve(rank, (rank / 10, 100 + rank / 2), (5, 20), (10, 20)) for rank in (0, 1, 2)]
    higher = curve(3, (0, 130), (5, 20), (10, 20))
    longer = curve(4, (0, 100), (9, 20), (10, 20))
    groups = groups_of([longer, higher, *same, curve(0, (0, 100), (10, 20), series="cpu")])
    found = {(group.series, *group.ranks) for group in groups}
    assert found == {("", 0, 1, 2), ("", 3), ("", 4), ("cpu", 0)}
    alone = groups_of([longer, higher, *same])
    assert [group.name(alone=True) for group in alone] == ["ranks 0..2", "rank 3", "rank 4"]


def test_many_unlike_ranks_share_the_last_band() -> None:
    curves = [curve(rank, (0, 100 * 2**rank), (9, 0)) for rank in range(6)]
    twins = [curve(6, (0, 3200), (9, 0)), curve(7, (0, 3200), (9, 0))]
    groups = groups_of([*curves, *twins])
    assert [group.ranks for group in groups] == [[5, 6, 7], [0], [1], [2, 3, 4]]


def test_of_one_instant_each_value_is_seen() -> None:
    """A block taken and freed within the clock's resolution: the peak is drawn, for no time."""
    table = pa.table({"rank": [0, 0, 0, 0], "cycle": [0, 0, 0, 0]})
    (found,) = curves_of(table, [""] * 4, [0.0, 1.0, 1.0, 2.0], [5.0, 9.0, 5.0, 5.0])
    assert found.values.tolist() == [5, 9, 5, 5]
    assert found.times == pytest.approx([0, 1, 1, 2]) and (np.diff(found.times) > 0).all()
    (piece,) = band_of([found])
    assert piece[3].tolist() == [5, 9, 5, 5]


def test_devices_and_categories_are_told_apart() -> None:
    rows: list[dict[str, Any]] = [
        {"rank": 0, "cycle": 0, "category": None, "device_kind": "gpu", "device": 0},
        {"rank": 0, "cycle": 0, "category": None, "device_kind": "gpu", "device": 1},
        {"rank": 1, "cycle": 0, "category": "activation", "device_kind": "gpu", "device": 1},
    ]
    found = curves_of(pa.Table.from_pylist(rows), ["gpu"] * 3, [1, 1, 1], [2, 3, 4])
    assert [(c.series, c.rank, c.values.tolist()) for c in found] == [
        ("gpu, gpu 0", 0, [2]),
        ("gpu, gpu 1", 0, [3]),
        ("activation", 1, [4]),
    ]
