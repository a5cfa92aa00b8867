"""Ranks without a file; when GPUs were recorded: two ranks, two devices, two cycles, a cut file."""

import pytest

from htk.quantities.derived.recorded import recorded_spans, unrecorded_ranks
from tests.tables import make


@pytest.mark.parametrize(
    ("ranks", "missing"),
    [
        ([(0, 8), (3, 8)], 6),
        ([(0, 2), (1, 2)], 0),
        ([(0, None), (1, None)], 0),  # the job's size was not recorded
        ([(None, 8)], 0),  # whose file it is was not recorded
        ([(0, 4), (0, 4)], 3),  # two files of one rank
        ([(5, 4)], 3),
    ],
)
def test_ranks_without_a_file(ranks: list[tuple[int | None, int | None]], missing: int) -> None:
    rows = [{"rank": rank, "world_size": size} for rank, size in ranks]
    assert unrecorded_ranks(make("ranks", rows)) == missing


def test_each_gpu_has_the_time_of_its_rank_s_files() -> None:
    ranks = make("ranks", [
        {"rank": 0, "cycle": 0, "start_ns": 100, "end_ns": 500},
        {"rank": 0, "cycle": 1, "start_ns": 900, "end_ns": 1200},
        {"rank": 1, "cycle": 0, "start_ns": 110, "end_ns": 300},
        {"rank": 2, "cycle": 0, "start_ns": None, "end_ns": None},
    ])  # fmt: skip
    work = [(0, 0, 0, 150, 520), (0, 1, 0, 90, 400), (0, 0, 1, 950, 1000), (1, 0, 0, 120, 250),
            (2, 0, 0, 10, 20), (2, 0, 0, 40, 60)]  # fmt: skip
    activities = make("activities", [
        {"rank": r, "device": d, "cycle": c, "start_ns": a, "end_ns": b} for r, d, c, a, b in work
    ])  # fmt: skip
    spans = recorded_spans(ranks, activities)
    assert {
        gpu: list(zip(s.start.tolist(), s.end.tolist(), strict=True)) for gpu, s in spans.items()
    } == {
        (0, 0): [(100, 520), (900, 1200)],  # the device had work in both
        (0, 1): [(90, 500)],  # its work began before what else the file holds
        (1, 0): [(110, 300)],
        (2, 0): [(10, 60)],  # a file that tells no times: from its work
    }
