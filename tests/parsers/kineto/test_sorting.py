"""The columns of a table's rows: by both engines, what each row of the file says."""

import io
import json
import random

import numpy as np
import pyarrow as pa
import pytest

from htk.base.core.engine import load_core
from htk.parsers.kineto import native, pure
from htk.parsers.kineto.raw import RawEvents
from htk.parsers.kineto.sorting import Columns

EVENTS = 700


def _document(dice: random.Random) -> bytes:
    """Events some of which lack what others have; a rare argument, and one that begins late."""
    events = []
    for k in range(EVENTS):
        event = {"ph": "X", "name": f"op{dice.randrange(40)}", "ts": k, "args": {}}
        if dice.random() < 0.7:
            event |= {"dur": dice.randrange(90), "cat": dice.choice(["kernel", "cpu_op", "ä\n"])}
        if dice.random() < 0.5:
            event["args"] |= {"device": dice.randrange(8), "stream": -dice.randrange(9)}
        if dice.random() < 0.03:
            event["args"] |= {"warps per SM": dice.random(), "Input Dims": [[dice.randrange(9)]]}
        if k > EVENTS // 2:
            event["args"]["correlation"] = dice.choice([k, 1 << 40, (1 << 31) + k])
        if k < EVENTS // 3:
            event["tid"] = k % 5
        events.append(event)
    return json.dumps({"traceEvents": events}).encode()


def _wrapped(value: int | None) -> int | None:
    """As 32 bits hold it."""
    return None if value is None else (value + (1 << 31)) % (1 << 32) - (1 << 31)


@pytest.mark.parametrize("engine", [native, pure], ids=["compiled", "pure"])
@pytest.mark.parametrize("share", [0, 0.01, 0.5, 1])
def test_each_row_has_its_own_value(engine, share: float) -> None:
    if engine is native and load_core() is None:
        pytest.skip("the compiled core is not built here")
    dice = random.Random(f"{share}")
    raw: RawEvents = engine.parse_events(io.BytesIO(_document(dice)))
    rows = np.array([k for k in range(EVENTS) if dice.random() < share], np.int64)
    columns = Columns(raw, rows, 0)
    for name in ("name", "cat", "tid", "in_dims", "pid"):
        truth = raw.dense(name).take(pa.array(rows)).to_pylist()
        text = columns.text(name)
        assert text.to_pylist() == truth
        assert sorted(text.dictionary.to_pylist()) == sorted({t for t in truth if t is not None})
        assert columns.text(name, compact=False).to_pylist() == truth
        codes, dictionary = columns.codes(name)
        assert [dictionary[c].as_py() if c >= 0 else None for c in codes.tolist()] == truth
    for name in ("ts", "dur", "device", "stream", "correlation", "warps_per_sm", "regs"):
        truth = raw.dense(name).take(pa.array(rows)).to_pylist()
        values, there = columns.values(name)
        assert there.tolist() == [t is not None for t in truth]
        assert values.tolist() == [t or 0 for t in truth]
        if name != "warps_per_sm":
            assert columns.number(name).to_pylist() == truth
            assert columns.number(name, pa.int32()).to_pylist() == [_wrapped(t) for t in truth]
        assert columns.number(name, pa.float64()).to_pylist() == truth
        columns.number(name, pa.float64()).validate(full=True)
