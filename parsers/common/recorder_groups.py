"""The process groups that a dump names."""

from typing import Any

from htk.base.mappings import Facts, Fields
from htk.parsers.common.log_records import compact_json, text_or_none, whole_number
from htk.parsers.common.recorder_dump import NAME, text_of


class ProcessGroups:
    """The process groups of a dump. Schema 1 names them by number."""

    def __init__(self, dump: Facts, entries: list[Fields]) -> None:
        config = dump.get("pg_config")
        self._groups = {
            name: _build_group(name, value)
            for key, value in (config.items() if isinstance(config, dict) else ())
            if key != "" and (name := text_of(key)) is not None
        }
        self._groups |= _find_unnamed(config, entries)
        self._name_of = {text_of(e.get("pg_id")): name_of_group(e) for e in entries}
        for entry in entries:
            name, description = _process_group(entry)
            self._groups.setdefault(name, _build_group(name, {"desc": description}))

    def list_fields(self, entry: Facts) -> Fields:
        return self._groups[name_of_group(entry)]

    @property
    def world_size(self) -> int | None:
        sizes = [
            g["group_size"] or 0
            for g in self._groups.values()
            if g["group_desc"] == "default_pg" or g["group"] == "0"
        ]
        return max(sizes, default=0) or None

    def rows(self, status: Any) -> list[Fields]:
        groups = {  # the list of ranks is for peers; the column holds it as text
            name: {key: value for key, value in group.items() if key != "ranks"}
            for name, group in self._groups.items()
        }
        for key, state in status.items() if isinstance(status, dict) else ():
            name = self._name_of.get(text_of(key), text_of(key))
            if name in groups and isinstance(state, dict):
                for step in ("enqueued", "started", "completed"):
                    groups[name][f"last_{step}"] = whole_number(
                        state.get(f"last_{step}_collective")
                    )
        return list(groups.values())


def _find_unnamed(config: Any, entries: list[Fields]) -> dict[str, Fields]:
    """Return the default group of a dump whose groups are configured without a name, as gloo's are.

    The members of the group configured last stand under the one empty key: they are those of the
    default group if the dump knows no other.
    """
    value = config.get("") if isinstance(config, dict) else None
    used = {_process_group(e) for e in entries}
    if value is None or len(used) != 1:
        return {}
    ((name, description),) = used
    group = _build_group(name, value) | {"group_desc": description}
    ranks = group["group_ranks"]
    everyone = ranks == compact_json(list(range(int(group["group_size"] or 0))))
    return {name: group} if everyone and description == "default_pg" else {}


def _process_group(entry: Facts) -> tuple[str, str | None]:
    pair = entry.get("process_group")
    if isinstance(pair, tuple | list) and len(pair) == 2:
        return text_of(pair[0]) or "", text_or_none(pair[1])
    return text_of(entry.get("pg_id")) or "", None


def name_of_group(entry: Facts) -> str:
    return _process_group(entry)[0]


def _build_group(name: str, value: Any) -> Fields:
    members = value if isinstance(value, dict) else {"ranks": value}
    ranks = _parse_ranks(members.get("ranks"))
    return {
        "source": NAME,
        "group": name,
        "group_desc": text_or_none(members.get("desc")),
        "group_ranks": None if ranks is None else compact_json(ranks),
        "group_size": None if ranks is None else len(ranks),
        "ranks": ranks,
    }


def _parse_ranks(value: Any) -> list[int] | None:
    """Return a list, or one printed as text: "[0, 1]"."""
    parts = value.strip("[] ").split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        return None
    ranks = [whole_number(p) for p in parts]
    valid = [r for r in ranks if r is not None and r >= 0]
    return valid if valid and len(valid) == len(ranks) else None
