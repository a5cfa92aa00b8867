"""Process groups that a dump of the flight recorder names: of both schemas, and by their gaps."""

from typing import Any

import pytest

from htk.parsers.common.recorder_groups import ProcessGroups, name_of_group


def entry(number: int, name: str, description: str) -> dict[str, Any]:
    return {"pg_id": number, "process_group": (name, description)}


def rows(
    config: Any, *entries: dict[str, Any], status: Any = None
) -> dict[str, tuple[Any, Any, Any]]:
    groups = ProcessGroups({"pg_config": config}, list(entries))
    return {
        row["group"]: (row["group_desc"], row["group_ranks"], row["group_size"])
        for row in groups.rows(status)
    }


def test_groups_with_their_members() -> None:
    config = {"0": {"desc": "default_pg", "ranks": "[0, 1, 2]"}, "5": {"desc": "tp", "ranks": [2]}}
    assert rows(config) == {"0": ("default_pg", "[0,1,2]", 3), "5": ("tp", "[2]", 1)}
    assert ProcessGroups({"pg_config": config}, []).world_size == 3


def test_a_group_of_calls_alone_has_no_members() -> None:
    assert rows(None, entry(1, "9", "dp")) == {"9": ("dp", None, None)}


@pytest.mark.parametrize("ranks", ["[0, x]", "[]", [0, -1], None, 7, {}])
def test_members_are_whole_or_unknown(ranks: object) -> None:
    assert rows({"3": {"desc": "tp", "ranks": ranks}}) == {"3": ("tp", None, None)}


def test_counters_find_their_group_by_name_or_number() -> None:
    """Status goes by the number of a group in its dump; groups by their names."""
    groups = ProcessGroups({"pg_config": {"a": {"ranks": [0]}}}, [entry(4, "b", "dp")])
    counters = {"last_enqueued_collective": 7, "last_completed_collective": "6"}
    status = {4: counters, "a": {"last_started_collective": 2}, "unknown": counters, "b": "none"}
    listed = {row["group"]: row for row in groups.rows(status)}
    assert set(listed) == {"a", "b"} and "ranks" not in listed["a"]
    assert listed["b"]["last_enqueued"] == 7 and listed["a"]["last_started"] == 2


def test_the_one_unnamed_group_is_the_default_one_if_all_take_part() -> None:
    """Gloo's groups are configured under an empty key, the last one over the others."""
    everyone = {"": {"desc": "last", "ranks": "[0, 1]"}}
    call = entry(0, "0", "default_pg")
    assert rows(everyone, call) == {"0": ("default_pg", "[0,1]", 2)}
    assert rows({"": {"ranks": "[1, 2]"}}, call) == {"0": ("default_pg", None, None)}
    two = (call, entry(1, "1", "tp"))
    assert rows(everyone, *two)["0"] == ("default_pg", None, None), "members of which"


def test_names_of_groups_of_both_schemas() -> None:
    assert name_of_group(entry(4, "b", "dp")) == "b"
    assert name_of_group({"pg_id": 4}) == "4"
    assert name_of_group({"pg_id": 4, "process_group": "b"}) == "4"
