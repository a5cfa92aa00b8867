"""Steps on the host, and the piece that a profiler's end leaves of the last."""

from htk.base.schema import CUT_WINDOWS
from htk.quantities.derived.totals import step_marks
from htk.quantities.measures.host_steps import host_steps
from tests.tables import make


def steps(*spans: tuple[int, int, int], rank: int = 0, cycle: int = 0) -> list[dict[str, object]]:
    who = {"rank": rank, "cycle": cycle}
    return [who | {"step": n, "start_ns": a, "end_ns": b} for n, a, b in spans]


def complete(rows: list[dict[str, object]]) -> dict[tuple[int, ...], bool]:
    found = host_steps(step_marks(make("annotations", rows), CUT_WINDOWS.empty_table()))
    keys = [tuple(key) for key in found.keys[:, :3].tolist()]
    return dict(zip(keys, found.complete.tolist(), strict=True))


def test_a_last_step_less_than_half_as_long_is_a_piece() -> None:
    rows = steps((3, 0, 100), (4, 100, 210), (5, 210, 250))
    rows += steps((3, 5, 95), (4, 100, 190), (5, 195, 250), rank=1)  # 55 of 90: whole
    assert complete(rows) == {
        (0, 0, 3): True, (0, 0, 4): True, (0, 0, 5): False,
        (1, 0, 3): True, (1, 0, 4): True, (1, 0, 5): True,
    }  # fmt: skip


def test_a_short_step_in_the_middle_is_whole_and_cycles_are_apart() -> None:
    rows = steps((1, 0, 100), (2, 100, 110), (3, 110, 210))
    rows += steps((1, 1000, 1100), (2, 1100, 1101), cycle=1)
    found = complete(rows)
    assert [found[0, 0, n] for n in (1, 2, 3)] == [True, True, True]
    assert [found[0, 1, n] for n in (1, 2)] == [True, False]


def test_steps_shown_on_the_gpu_and_ranges_are_none() -> None:
    on_gpu = [row | {"on_gpu": True} for row in steps((9, 0, 50))]
    assert set(complete(steps((1, 0, 10)) + on_gpu + [{"rank": 0, "start_ns": 1}])) == {(0, 0, 1)}


def test_of_steps_that_begin_together_the_longer_is_the_last() -> None:
    rows = steps((1, 0, 100), (2, 100, 200), (4, 200, 300), (3, 200, 200))
    assert all(complete(rows).values())
