"""An independent reading of a trace, by plain json and Decimal, and the engines held against it."""

import io
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from htk.base.core.engine import load_core
from htk.parsers.kineto.columns import COLUMNS, REST, SPELLED, EventColumn
from htk.parsers.kineto.raw import RawEvents

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.A)
HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]+")
PLAIN_ID = re.compile(r"0|[1-9]\d{0,17}", re.A)
EVENT_COLUMNS = {c.key: c for c in COLUMNS if c.scope == "event" and c not in SPELLED}
TEXT_OF_IDS = {c.key: c for c in SPELLED}
ARGS_COLUMNS = {c.key: c for c in COLUMNS if c.scope == "args" and c.name != REST}


class Number(str):
    """A number as the file spells it."""


@dataclass(frozen=True)
class Json:
    """Equal to any compact text of the same JSON value."""

    value: Any

    def __eq__(self, text: object) -> bool:
        if not isinstance(text, str) or re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', "", text)):
            return False
        return loads(text) == self.value


class NoValue(Exception):
    """A value of another type than its column's."""


@dataclass
class Truth:
    """What a trace says: the values by column and row, and how many are of another type."""

    rows: int = 0
    columns: dict[str, dict[int, Any]] = field(default_factory=dict)
    mistyped: int = 0
    header: dict[str, Any] = field(default_factory=dict)

    def put(self, column: EventColumn, row: int, value: Any) -> None:
        if column.kind == "ids" and not (isinstance(value, str) and PLAIN_ID.fullmatch(value)):
            column = TEXT_OF_IDS[column.key]
        try:
            cell = meaning(column.kind, value)
        except NoValue:
            self.mistyped += 1
            return
        if cell is not None:
            self.columns.setdefault(column.name, {})[row] = cell


def loads(text: str) -> Any:
    return json.loads(text, strict=False, parse_float=Number, parse_int=Number)


def read_truth(text: bytes, rest: bool = False) -> Truth:
    document = loads(text.decode("utf-8-sig"))
    events = document if isinstance(document, list) else document.pop("traceEvents")
    truth = Truth(rows=len(events))
    if isinstance(document, dict):
        again = json.loads(text.decode("utf-8-sig"))
        truth.header = {key: again[key] for key in document}
    for row, event in enumerate(events):
        for key, value in event.items():
            if key in EVENT_COLUMNS:
                truth.put(EVENT_COLUMNS[key], row, value)
        args = event.get("args")
        if not isinstance(args, dict):
            continue
        for key, value in args.items():
            if key in ARGS_COLUMNS:
                truth.put(ARGS_COLUMNS[key], row, value)
        unread = {key: value for key, value in args.items() if key not in ARGS_COLUMNS}
        if event.get("ph") in ("C", "M"):
            truth.columns.setdefault(REST, {})[row] = Json(args)
        elif rest and unread:
            truth.columns.setdefault(REST, {})[row] = Json(unread)
    return truth


def meaning(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "json":
        return Json(value)
    if kind == "text":
        return text_of(value)
    if kind == "ids":
        return int(value)
    if isinstance(value, bool) or not isinstance(value, str):
        raise NoValue
    quoted = not isinstance(value, Number)
    if kind == "floats":
        if quoted and value == "N/A":
            return None
        if quoted and value.lower().lstrip("+-") in ("nan", "inf", "infinity"):
            return float(value)
        return float(number(value))
    if kind == "ints" and quoted and HEXADECIMAL.fullmatch(value):
        return in_range(int(value, 16))
    return scaled(number(value), 3 if kind == "nanos" else 0, exact=kind == "ints")


def text_of(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    return Json(value)


def number(text: str) -> Decimal:
    if not NUMBER.fullmatch(text):
        raise NoValue
    return Decimal(text)


def scaled(value: Decimal, places: int, exact: bool) -> int:
    with localcontext() as context:
        context.prec = 400
        shifted = value.scaleb(places)
        rounded = shifted.to_integral_value(ROUND_HALF_EVEN)
    if exact and rounded != shifted:
        raise NoValue
    return in_range(int(rounded))


def in_range(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise NoValue
    return value


def differences(truth: Truth, raw: RawEvents) -> list[Any]:
    """Where an engine's columns are not what the file says; the first of each column."""
    unequal: list[Any] = []
    if raw.rows != truth.rows:
        unequal.append(("rows", raw.rows, truth.rows))
    if set(raw.names) != set(truth.columns):
        unequal.append(("names", set(raw.names) ^ set(truth.columns)))
    if raw.issue_counts["mistyped_value"] != truth.mistyped:
        unequal.append(("mistyped", raw.issue_counts["mistyped_value"], truth.mistyped))
    for name in set(raw.names) & set(truth.columns):
        cells, expected = sparse(raw, name), truth.columns[name]
        if list(cells) != list(expected):
            unequal.append((name, "rows", set(cells) ^ set(expected)))
            continue
        compared: dict[Any, bool] = {}  # repeated texts are parsed once
        for row, value in cells.items():
            key = (value, repr(expected[row]))
            if key not in compared:
                compared[key] = alike(expected[row], value)
            if not compared[key]:
                unequal.append((name, row, value, expected[row]))
                break
    return unequal


def alike(expected: Any, value: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(value, float) and math.isnan(value)
    return bool(expected == value)


def sparse(raw: RawEvents, name: str) -> dict[int, Any]:
    """A column's values by row."""
    rows, values = raw.column_rows(name), raw.values(name)
    listed = values.to_pylist() if isinstance(values, pa.DictionaryArray) else values.tolist()
    return dict(zip(range(raw.rows) if rows is None else rows.tolist(), listed, strict=True))


def cells(raw: RawEvents) -> dict[str, Any]:
    """All of an engine's values, for comparison with the other's."""
    return {name: repr(sparse(raw, name)) for name in raw.names}


class Pieces(io.RawIOBase):
    """A stream that hands out as many bytes at a time as it is told."""

    def __init__(self, text: bytes, sizes: Callable[[], int] = lambda: 1 << 20) -> None:
        self.left = memoryview(text)
        self.sizes = sizes

    def readinto(self, buffer: Any) -> int:
        piece = self.left[: min(len(buffer), self.sizes())]
        buffer[: len(piece)] = piece
        self.left = self.left[len(piece) :]
        return len(piece)


class Parts(io.RawIOBase):
    """A stream of parts, none longer than a block."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self.parts = iter(parts)

    def readinto(self, buffer: Any) -> int:
        part = next(self.parts, b"")
        buffer[: len(part)] = part
        return len(part)


@pytest.fixture(scope="session", params=["compiled", "pure"])
def read(request: pytest.FixtureRequest) -> Callable[..., RawEvents]:
    """Reads bytes by one engine, then by the other."""
    return reader(request.param)


@pytest.fixture(scope="session")
def both() -> tuple[Callable[..., RawEvents], Callable[..., RawEvents]]:
    return reader("compiled"), reader("pure")


@pytest.fixture(scope="session")
def truth() -> SimpleNamespace:
    return SimpleNamespace(
        read=read_truth,
        differences=differences,
        sparse=sparse,
        cells=cells,
        Pieces=Pieces,
        Parts=Parts,
    )


def reader(engine: str) -> Callable[..., RawEvents]:
    if engine == "compiled" and load_core() is None:
        pytest.skip("the compiled core is not built here")
    from htk.parsers.kineto import pure

    module = pure
    if engine == "compiled":
        from htk.parsers.kineto import native as module

    def read(text: bytes | io.RawIOBase, **options: Any) -> RawEvents:
        stream = Pieces(text) if isinstance(text, bytes) else text
        return module.parse_events(stream, **options)

    return read
