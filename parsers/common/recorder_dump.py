"""The bytes of a dump as plain containers: its pickle or JSON, whole or cut.

The pickle is read by an unpickler that knows no global. What a killed process left of one is
walked opcode by opcode, and the whole entries are kept.
"""

import itertools
import json
import re
from typing import Any

from htk.base.errors import MalformedTrace
from htk.base.mappings import Facts, Fields
from htk.parsers.common.log_records import Issues, refuse_costly_json, salvaged_json, whole_number
from htk.parsers.common.safe_pickle import PlainUnpickler, RefusedPickle, left_over, load_plain

NAME = "flight_recorder"
_MOST_ENTRIES = 1 << 18  # its ring holds 2,000 unless set otherwise
LONGEST_TEXT = 4096


def load_dump(data: bytes, name: str, issues: Issues) -> Facts:
    if data[:1] == b"\x80":
        dump = _unpickle_dump(data, name, issues)
    else:
        refuse_costly_json(name, data)
        dump = _decode_dump(data.decode("utf8", "replace"), name, issues)
    if isinstance(dump, list):  # as the oldest dumps were
        return {"entries": dump}
    if isinstance(dump, dict):
        return dump
    raise MalformedTrace(f"{name}: holds a {type(dump).__name__}, expected a flight recorder dump")


class _Unpickler(PlainUnpickler):
    """Knows the list marks of torch's pickler too."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and re.fullmatch(r"build_\w*list", name):
            return _as_it_is
        if module == "torch.jit._pickle" and name == "restore_type_tag":
            return _as_it_is
        return super().find_class(module, name)


def _as_it_is(value: Any, _tag: Any = None) -> Any:
    """Return the container that a mark is put on: a copy for each mark could fill the memory."""
    if isinstance(value, list | dict):
        return value
    raise RefusedPickle(f"to mark a {type(value).__name__}, which torch does not")


def _unpickle_dump(data: bytes, name: str, issues: Issues) -> Any:
    try:
        return load_plain(data, _Unpickler)
    except RefusedPickle as refused:
        raise MalformedTrace(
            f"{name}: this pickle asks {refused}, which no flight recorder dump does; "
            "it was not run; do not trust the file"
        ) from None
    except MemoryError:  # what was read of it is not all there is
        raise
    except Exception as error:  # a cut pickle may fail in any way; none of them is fatal
        dump = _salvage_pickle(data)
        if not dump:
            raise MalformedTrace(
                f"{name}: truncated or damaged pickle without a complete entry ({error})"
            ) from None
        issues.add("truncated", f"the pickle is truncated or damaged ({error})", len(data))
        return dump


def _salvage_pickle(data: bytes) -> Fields:
    """Return what a cut pickle holds: its whole entries, and the members before them."""
    left = left_over(data)
    dump: Fields = {}
    for key, value in itertools.pairwise(left):
        if key in ("version", "pg_config", "pg_status", "comm_lib_version", "nccl_version"):
            dump.setdefault(key, value)
    entries = [item for item in left if is_entry(item)]
    for item in left:
        if isinstance(item, list):
            entries += [e for e in item if is_entry(e)]
    if entries:
        dump["entries"] = entries
    return dump


def _decode_dump(text: str, name: str, issues: Issues) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        members = ("version", "comm_lib_version", "pg_config", "pg_status")
        dump = salvaged_json(text, "entries", members)
        dump["entries"] = [e for e in dump["entries"] if is_entry(e)]
        if not dump["entries"]:
            raise MalformedTrace(f"{name}: truncated or damaged JSON ({error})") from None
        issues.add("truncated", f"the JSON is truncated or damaged ({error})", len(text))
        return dump


def entries_of(dump: Facts, issues: Issues) -> list[Fields]:
    """The records of collectives, each once: a pickle can name one object a million times."""
    listed = list_of(dump.get("entries"))
    entries = list({id(e): e for e in listed if is_entry(e)}.values())
    if lost := len(listed) - len(entries):
        issues.add("broken_entry", "an entry is not a record of a collective", count=lost)
    if more := len(entries[_MOST_ENTRIES:]):
        issues.add("too_many_entries", f"only the first {_MOST_ENTRIES:,} are read", count=more)
    return entries[:_MOST_ENTRIES]


def is_entry(entry: Any) -> bool:
    name = entry.get("profiling_name") if isinstance(entry, dict) else None
    return isinstance(name, str) and len(name) <= LONGEST_TEXT


def text_of(value: Any) -> str | None:
    """Return a text or a whole number as text; anything else is none."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    number = whole_number(value)
    return None if number is None else str(number)


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
