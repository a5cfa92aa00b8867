"""Facts on the job around a recording: those that `htk.capture` would write are believed."""

from htk.base.schema.environment_facts import FACTS, MOST_LENGTH
from htk.parsers.common.log_records import compact_json


def listed_environment(value: object) -> str | None:
    """Return a file's facts as compact JSON; what is not on the list is left out."""
    if not isinstance(value, dict):
        return None
    kept = {
        name: text
        for name, text in value.items()
        if name in FACTS and isinstance(text, str) and len(text) <= MOST_LENGTH
    }
    return compact_json(kept) if kept else None
