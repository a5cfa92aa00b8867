"""Answers of Prometheus' HTTP API (`query`, `query_range`), told again as lines of samples."""

import json
from collections.abc import Callable, Iterator

from htk.base.core.parser import Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.parsers.common.log_lines import LogLine
from htk.parsers.common.log_records import Issues, list_of, read_json


def read_answer(
    source: Source, issues: Issues, progress: Callable[[int], None] | None
) -> Iterator[LogLine]:
    """Yield a line for each value of each series."""
    try:
        answer = json.loads(read_json(source, issues, progress))
    except (ValueError, RecursionError) as error:
        raise MalformedTrace(f"{source.name}: truncated or damaged: {error}") from None
    content = answer.get("data")
    for series in list_of(content.get("result") if isinstance(content, dict) else None):
        if isinstance(series, dict):
            yield from _lines(series)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _lines(series: Fields) -> Iterator[LogLine]:
    metric = series.get("metric")
    labels = metric.items() if isinstance(metric, dict) else ()
    named = ",".join(f"{name}={_quote(str(text))}" for name, text in labels)
    for moment in [series.get("value"), *list_of(series.get("values"))]:
        match moment:
            case [int() | float() as time, str() as value]:
                yield LogLine(0, f"{{{named}}} {value} {time:.3f}")
