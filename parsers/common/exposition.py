"""Samples as Prometheus' text formats and `promtool tsdb dump` write them.

`name{label="value",…} value [time]`, or `{__name__="name",…} value time`. A time is milliseconds
since 1970 in the old format, seconds in OpenMetrics; a file that was scraped once has none.
Answers of Prometheus' HTTP API (`query`, `query_range`) are told again as such lines.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from htk.base.core.parser import Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.parsers.common.log_lines import LogLine
from htk.parsers.common.log_records import Issues, list_of, read_json

_SAMPLE = re.compile(
    r"^\s{0,9}(?P<name>[a-zA-Z_:][\w:]{0,255})?"
    r'(?:\{(?P<labels>[^"}]*(?:"(?:[^"\\]|\\.)*"[^"}]*)*)\})?\s{1,9}'
    r"(?P<value>[^\s#]{1,64})(?:\s{1,9}(?P<time>-?\d{1,19}(?:\.\d{1,9})?))?\s{0,9}(?:#.*)?$"
)
_LABEL = re.compile(r'(?<!\w)(\w{1,64})="((?:[^"\\]|\\.)*)"')
_MILLISECONDS = 1e11  # a time above it is none in seconds, before the year 5138
_LATEST_S = 1 << 32
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True)
class Sample:
    """One value of one series."""

    name: str
    labels: Mapping[str, str]
    value: float | None  # null: no finite number
    time_ns: int | None


def parse_sample(line: str) -> Sample | None:
    """Return the sample of a line; None: it is none."""
    match = _SAMPLE.match(line)
    if match is None:
        return None
    labels = {
        name: _ESCAPED.sub(_unescape_match, text) for name, text in _parse_labels(match["labels"])
    }
    name = match["name"] or labels.pop("__name__", "")
    try:
        value = float(match["value"])
    except ValueError:
        return None
    time = _time_ns(match["time"])
    return Sample(name, labels, value if math.isfinite(value) else None, time) if name else None


def _parse_labels(text: str | None) -> list[tuple[str, str]]:
    return _LABEL.findall(text or "")


def _unescape_match(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _time_ns(text: str | None) -> int | None:
    if text is None:
        return None
    units, _, fraction = text.partition(".")
    scale = 10**6 if abs(int(units)) > _MILLISECONDS else 10**9
    if abs(int(units)) * scale > _LATEST_S * 10**9:
        return None
    digits = int(f"{fraction or 0:0<9}")
    return int(units) * scale + (digits * scale // 10**9 if units[0] != "-" else 0)


def read_answer(
    source: Source, issues: Issues, progress: Callable[[int], None] | None
) -> Iterator[LogLine]:
    """Yield a line for each value of each series that Prometheus answers."""
    try:
        answer = json.loads(read_json(source, issues, progress))
    except (ValueError, RecursionError) as error:
        raise MalformedTrace(f"{source.name}: truncated or damaged: {error}") from None
    content = answer.get("data")
    for series in list_of(content.get("result") if isinstance(content, dict) else None):
        if isinstance(series, dict):
            yield from _series_lines(series)


def _quote_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _series_lines(series: Fields) -> Iterator[LogLine]:
    metric = series.get("metric")
    labels = metric.items() if isinstance(metric, dict) else ()
    named = ",".join(f"{name}={_quote_text(str(text))}" for name, text in labels)
    for moment in [series.get("value"), *list_of(series.get("values"))]:
        match moment:
            case [int() | float() as time, str() as value]:
                yield LogLine(0, f"{{{named}}} {value} {time:.3f}")
