"""Which source's collectives count, and which rows count together."""

import numpy as np

from htk.quantities.derived.sources import counted_rows, each_source
from tests.tables import make


def test_the_source_that_knows_times_best_counts_and_each_row_is_of_one_set() -> None:
    named = ["flight_recorder", "own tool", "kineto", None, "kineto", "another"]
    table = make("collectives", [{"source": source} for source in named])
    assert np.flatnonzero(counted_rows(table)).tolist() == [2, 4]
    assert counted_rows(table.slice(0, 2)).tolist() == [True, False], "flight_recorder"
    assert counted_rows(table.take([1, 3, 5])).all()
    assert not len(counted_rows(table.slice(0, 0)))
    sets = [among.tolist() for among in each_source(table)]
    assert sorted(map(tuple, ([k for k in range(6) if s[k]] for s in sets))) == [
        (0,),
        (1, 3, 5),  # of none that is preferred: they count together
        (2, 4),
    ]
    assert not list(each_source(table.slice(0, 0)))


def test_a_profiler_comes_before_records_of_the_host() -> None:
    """Which profiler it is does not matter, nor that ranks have others."""
    named = ["flight_recorder", "nsight", "inspector", "rocpd", "nsight"]
    table = make("collectives", [{"source": source} for source in named])
    assert np.flatnonzero(counted_rows(table)).tolist() == [1, 3, 4]
