"""Samples of Prometheus' text, written in every way and read again, and those of its answers."""

import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.core.parser import Source
from htk.base.errors import MalformedTrace
from htk.parsers.common.exposition import parse_sample, read_answer
from htk.parsers.common.log_records import Issues

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,30}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=12),
    max_size=4,
)
SECONDS = st.integers(1, 4_000_000_000)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def written(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())


@given(NAMES, LABELS, st.floats(allow_nan=True), SECONDS, st.integers(0, 999))
def test_what_is_written_is_read(
    name: str, labels: dict[str, str], value: float, seconds: int, millis: int
) -> None:
    now = seconds * 10**9 + millis * 10**6
    times = {"": None, f" {seconds}.{millis:03}": now}
    if seconds > 200_000_000:  # milliseconds of earlier years look like seconds of later ones
        times[f" {seconds * 1000 + millis}"] = now
    for text, expected in times.items():
        for line in (
            f"{name}{{{written(labels)}}} {value!r}{text}",
            f"{{{written({'__name__': name} | labels)}}} {value!r}{text}",
        ):
            read = parse_sample(line)
            assert read is not None
            assert (read.name, read.labels, read.time_ns) == (name, labels, expected)
            assert read.value == (value if math.isfinite(value) else None)


@given(st.text(max_size=80))
def test_any_line_is_a_sample_or_none(line: str) -> None:
    parse_sample(line)
    parse_sample("a{" + line + "} 1")
    parse_sample("a 1 " + line)


@pytest.mark.parametrize("line", ["", "# HELP a b", "a", "a{} x", "{} 1", 'a{b="c} 1 2 3'])
def test_what_is_no_sample(line: str) -> None:
    assert parse_sample(line) is None


def test_exemplars_and_times_out_of_range() -> None:
    bucket = parse_sample('a_bucket{le="1"} 3 1700000000.5 # {trace_id="x"} 0.6')
    assert bucket is not None and bucket.time_ns == 1_700_000_000_500_000_000
    late = parse_sample("a 1 99999999999999999")
    assert late is not None and late.time_ns is None


def samples(answer: Any) -> list[Any]:
    source = Source("answer.json", lambda: io.BytesIO(json.dumps(answer).encode()))
    return [parse_sample(line.text) for line in read_answer(source, Issues(), None)]


def test_one_moment_and_many_are_samples() -> None:
    metric = {"__name__": "m", "port": 'a\\b "c" é'}
    results = [
        {"metric": metric, "value": [1_785_000_000.25, "4e3"]},
        {"metric": {"__name__": "n"}, "values": [[5, "1"], [6, "NaN"], ["5", "1"], [7, 1], None]},
    ]
    read = samples({"data": {"result": [*results, {"values": 3}, 4]}})
    assert [(s.name, s.value, s.time_ns) for s in read] == [
        ("m", 4000.0, 1_785_000_000_250_000_000), ("n", 1.0, 5 * 10**9), ("n", None, 6 * 10**9),
    ]  # fmt: skip
    assert dict(read[0].labels) == {"port": 'a\\b "c" é'}


def test_other_answers_hold_none() -> None:
    assert samples({"data": None}) == samples({"data": {"result": {}}}) == samples({}) == []
    source = Source("answer.json", lambda: io.BytesIO(b'{"data": {"result": ['))
    with pytest.raises(MalformedTrace, match=r"answer\.json"):
        list(read_answer(source, Issues(), None))
