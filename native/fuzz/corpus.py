"""Write what the fuzzers begin with, and the columns of the reader as C++.

    python native/fuzz/corpus.py build/fuzz

Everything is made here or is one of the project's own samples: small documents of all kinds of
events, whole and damaged, and lists of nested calls.
"""

import gzip
import json
import random
import struct
import sys
from collections import Counter
from pathlib import Path

from htk.parsers.kineto.columns import COLUMNS, REST

ROOT = Path(__file__).parents[2]
SCOPES = {"event": "kineto::kEvent", "args": "kineto::kArgs"}
OF_ARGS = 3  # columns of each kind: more cost time and no other code reads them
KINDS = {
    "ints": "kInt",
    "floats": "kFloat",
    "nanos": "kNanos",
    "ids": "kId",
    "text": "kText",
    "json": "kJson",
}
HEAD = """#pragma once
#include "kineto/parser.h"
struct FuzzedColumn { kineto::Scope scope; const char* key; kineto::Kind kind; };
constexpr FuzzedColumn kColumns[] = {
"""
EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": "2", "ts": 1.5, "dur": 2}
VALUES = ["x", "é\n\\", 7, -1.25, 1e30, "0x1f", "12", None, True, [1, [2]], {"a": {}}, "NaN"]


def main() -> None:
    target = Path(sys.argv[1])
    for name in ("parse", "nest", "memory"):
        (target / "corpus" / name).mkdir(parents=True, exist_ok=True)
    (target / "columns.h").write_text(columns())
    for number, text in enumerate(documents()):
        (target / "corpus/parse" / f"seed_{number}").write_bytes(bytes([number % 256, 7]) + text)
    for number, data in enumerate(nests()):
        (target / "corpus/nest" / f"seed_{number}").write_bytes(data)
    dice = random.Random(3)
    for number in range(6):
        (target / "corpus/memory" / f"seed_{number}").write_bytes(dice.randbytes(240))


def columns() -> str:
    """Return columns as the Python engine describes them to the compiled one."""
    lines, of_args = [], Counter[str]()
    for column in COLUMNS:
        of_args[column.kind] += column.scope == "args" and column.name != REST
        if column.scope == "args" and column.name != REST and of_args[column.kind] > OF_ARGS:
            continue
        scope = "kineto::kRest" if column.name == REST else SCOPES[column.scope]
        lines.append(f"    {{{scope}, {json.dumps(column.key)}, kineto::{KINDS[column.kind]}}},\n")
    return HEAD + "".join(lines) + "};\n"


def documents() -> list[bytes]:
    dice = random.Random(1)
    keys = [key for key in (column.key for column in COLUMNS) if json.dumps(key) in columns()]
    events = [EVENT]
    for phase in "XMCisfBE":
        args = {key: dice.choice(VALUES) for key in [*dice.sample(keys, 5), "unread"]}
        events.append(EVENT | {"ph": phase, "id": 5, "args": args})
    header = {"schemaVersion": 1, "with_stack": 0, "deviceProperties": [{"id": 0}]}
    plain = {**header, "traceEvents": events, "traceName": "t"}
    texts = [
        json.dumps(plain),
        json.dumps(plain, indent=2),
        json.dumps(plain, separators=(",", ":"), ensure_ascii=False),
        json.dumps(events),
        '{"traceEvents":[]}',
        '{"traceEvents":[' + " " * 300 + json.dumps(EVENT) + "," + " " * 70 + json.dumps(EVENT),
        json.dumps(plain).replace('"ts": 1.5', '"ts": "1.5', 1),
        json.dumps(plain).replace("}, {", "} {", 2),
        json.dumps({"x": 'say "hi"', **plain}).replace('\\"', '"'),
    ]
    sample = ROOT / "htk/traces/sample"
    trace = next(file for file in sorted(sample.iterdir()) if file.name.endswith(".json.gz"))
    start = gzip.decompress(trace.read_bytes())[:6000]
    return [text.encode() for text in texts] + [start]


def nests() -> list[bytes]:
    dice = random.Random(2)
    narrow = [bytes([0, *(dice.randrange(256) for _ in range(2 * n))]) for n in (1, 5, 30)]
    edges = (0, 1, -1, 2**62, -(2**62), 2**63 - 1, -(2**63))
    spans = b"".join(struct.pack("<bqq", 0, a, b) for a in edges for b in edges)
    return [*narrow, b"\1" + spans]


if __name__ == "__main__":
    main()
