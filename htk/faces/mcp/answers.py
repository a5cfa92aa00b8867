"""Answers small enough for a conversation: some rows, units, coverage, and what was left out."""

import json
from typing import Any

from htk.answers.output.result import Result
from htk.base.mappings import Fields

MOST_CHARACTERS = 60_000
_MOST_TEXT = 400  # of one value


def bound_answer(result: Result, rows: int, offset: int = 0) -> str:
    """Return an answer as JSON of at most `MOST_CHARACTERS`, with as many of its rows as fit.

    Moments are told from the recording's start: what reads JSON in a host holds no more than 2**53.
    """
    offset = min(max(offset, 0), len(result))
    page = Result(result.analysis, result.table.slice(offset), result.coverage).head(rows)
    document = page.since_start().to_json()
    document["rows"] = [{k: _shorten_value(v) for k, v in row.items()} for row in document["rows"]]
    document["columns"] = [
        {k: column[k] for k in ("name", "unit", "doc") if column[k]}
        for column in document["columns"]
    ]
    while (
        len(text := _spell_document(document, result, offset)) > MOST_CHARACTERS
        and document["rows"]
    ):
        del document["rows"][len(document["rows"]) // 2 :]
    if len(text) > MOST_CHARACTERS:  # many columns, or a long coverage
        document["columns"] = [{"name": column["name"]} for column in document["columns"]]
        document["coverage"] = {k: _shorten_value(str(v)) for k, v in result.coverage.items()}
        text = _spell_document(document, result, offset)
    return text


def _spell_document(document: Fields, result: Result, offset: int) -> str:
    end = offset + len(document["rows"])
    left_out = len(result) - len(document["rows"])
    facts: Fields = {"rows_left_out": left_out} if left_out else {}
    if end < len(result):
        facts["next_offset"] = end
    return json.dumps(document | facts, separators=(",", ":"), default=str, ensure_ascii=False)


def _shorten_value(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= _MOST_TEXT:
        return value
    return f"{value[:_MOST_TEXT]}… ({len(value) - _MOST_TEXT:,} more characters)"
