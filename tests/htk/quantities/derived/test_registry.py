"""Which tables are made of which: every maker, and what each rests on."""

import pytest

from htk.base.schema import DERIVED, TABLES
from htk.quantities.derived.registry import NAMES, OVER_RANKS, PER_FILE, base_tables, find_maker


@pytest.mark.parametrize("name", NAMES)
def test_makers_read_tables_of_files_or_of_other_makers(name: str) -> None:
    assert set(find_maker(name).reads) <= {*TABLES, *NAMES}
    assert name in DERIVED and name not in TABLES


@pytest.mark.parametrize("name", PER_FILE)
def test_what_is_cached_beside_a_file_needs_no_other_file(name: str) -> None:
    """Else its cache would be stale as soon as another rank's file comes."""
    assert not set(find_maker(name).reads) & set(OVER_RANKS)


def reached(name: str) -> set[str]:
    """All tables that one rests on, by walking from it."""
    seen, queue = set(), [name]
    while queue:
        table = queue.pop()
        if table not in seen:
            seen.add(table)
            queue += find_maker(table).reads if table in NAMES else ()
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_base_tables_are_those_that_nobody_makes(name: str) -> None:
    assert base_tables([name]) == reached(name) & set(TABLES)
    assert name not in {t for read in find_maker(name).reads for t in reached(read)}, "a circle"


def test_base_tables_by_hand() -> None:
    assert base_tables([]) == set()
    assert base_tables(["kernels"]) == {"kernels"}
    assert find_maker("op_links").reads == ("cpu_ops", "annotations")
    assert base_tables(["op_links", "memory"]) == {"cpu_ops", "annotations", "memory"}
