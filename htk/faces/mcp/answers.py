"""Answers small enough for a conversation: some rows, units, coverage, and what was left out."""

import json
from typing import Any

from htk.answers.output.result import Result
from htk.base.mappings import Fields

MOST_CHARACTERS = 60_000
_MOST_TEXT = 400  # of one value


def bounded(result: Result, rows: int) -> str:
    """Return an answer as JSON of at most `MOST_CHARACTERS`, with as many of its rows as fit."""
    document = result.head(rows).to_json()
    document["rows"] = [{k: _short(v) for k, v in row.items()} for row in document["rows"]]
    document["columns"] = [
        {k: column[k] for k in ("name", "unit", "doc") if column[k]}
        for column in document["columns"]
    ]
    while len(text := _text(document, result)) > MOST_CHARACTERS and document["rows"]:
        del document["rows"][len(document["rows"]) // 2 :]
    if len(text) > MOST_CHARACTERS:  # many columns, or a long coverage
        document["columns"] = [{"name": column["name"]} for column in document["columns"]]
        document["coverage"] = {k: _short(str(v)) for k, v in result.coverage.items()}
        text = _text(document, result)
    return text


def _text(document: Fields, result: Result) -> str:
    left_out = len(result) - len(document["rows"])
    facts = document | ({"rows_left_out": left_out} if left_out else {})
    return json.dumps(facts, separators=(",", ":"), default=str, ensure_ascii=False)


def _short(value: Any) -> Any:
    long = isinstance(value, str) and len(value) > _MOST_TEXT
    return value[: _MOST_TEXT - 1] + "…" if long else value
