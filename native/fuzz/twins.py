"""Read every document of a folder with the compiled engine and with its twin in Python.

    python native/fuzz/twins.py build/fuzz/corpus/parse

Ends with 1 and names the documents that the two read otherwise.
"""

import io
import sys
from pathlib import Path
from typing import Any

from htk.parsers.kineto import native, pure
from htk.parsers.kineto.columns import NAMES
from htk.parsers.kineto.raw import RawEvents

COUNTED = ("broken_event", "broken_header", "not_a_trace")


def main() -> int:
    files = sorted(Path(sys.argv[1]).iterdir())
    unlike = [file for file in files if not agree(file.read_bytes())]
    for file in unlike:
        print(f"read otherwise by the two engines: {file}")
    print(f"Done, {len(files)} documents, {len(unlike)} read otherwise")
    return int(bool(unlike))


def agree(data: bytes) -> bool:
    """Whether both engines give the same; the first two bytes are the fuzzer's own."""
    rest = bool(data[:1] and data[0] & 1)
    compiled, slow = (
        content(engine.parse_events(io.BytesIO(data[2:]), rest=rest)) for engine in (native, pure)
    )
    return compiled == slow


def content(raw: RawEvents) -> tuple[Any, ...]:
    cells = {name: repr(raw.dense(name).to_pylist()) for name in NAMES if raw.has(name)}
    counts = {kind: raw.issue_counts[kind] for kind in COUNTED}
    return raw.rows, repr(raw.header), raw.truncated, counts, cells


if __name__ == "__main__":
    sys.exit(main())
