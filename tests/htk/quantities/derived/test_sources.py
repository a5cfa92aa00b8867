"""Which source's collectives count, and which rows count together."""

from htk.quantities.derived.sources import best_source, each_source
from tests.tables import make


def test_the_source_that_knows_times_best_counts_and_each_row_is_of_one_set() -> None:
    named = ["flight_recorder", "own tool", "kineto", None, "kineto", "another"]
    table = make("collectives", [{"source": source} for source in named])
    assert best_source(table) == "kineto"
    assert best_source(table.slice(0, 2)) == "flight_recorder"
    assert best_source(table.take([1, 3, 5])) is None
    sets = [among.tolist() for among in each_source(table)]
    assert sorted(map(tuple, ([k for k in range(6) if s[k]] for s in sets))) == [
        (0,),
        (1, 3, 5),  # of none that is preferred: they count together
        (2, 4),
    ]
    assert not list(each_source(table.slice(0, 0)))
