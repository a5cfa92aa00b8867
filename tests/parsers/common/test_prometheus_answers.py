"""Lines of samples from answers of Prometheus' HTTP API."""

import io
import json
from typing import Any

import pytest

from htk.base.core.parser import Source
from htk.base.errors import MalformedTrace
from htk.parsers.common.exposition import sample
from htk.parsers.common.log_records import Issues
from htk.parsers.common.prometheus_answers import read_answer


def samples(answer: Any) -> list[Any]:
    source = Source("answer.json", lambda: io.BytesIO(json.dumps(answer).encode()))
    return [sample(line.text) for line in read_answer(source, Issues(), None)]


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
