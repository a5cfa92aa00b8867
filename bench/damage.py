"""What is left of a trace that was damaged in one of many ways, and is it said?

    python bench/damage.py [TRACE] [--seeds 5] [-o FILE]

Every kind of damage is done to the file (default: a rank of the sample) at places that the seed
draws; both readers read it. They must agree, raise nothing, and where events are missing an issue
must say so. Prints a table; ends with 1 where one of these does not hold.
"""

import argparse
import gzip
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from htk.base.io.decompress import open_stream
from htk.parsers.kineto import native, pure
from htk.parsers.kineto.columns import NAMES
from htk.parsers.kineto.raw import RawEvents

ROOT = Path(__file__).parents[1]
Damage = Callable[[bytes, random.Random], bytes]


def cut(text: bytes, dice: random.Random) -> bytes:
    return text[: dice.randrange(len(text) // 10, len(text))]


def lose(size: int) -> Damage:
    def change(text: bytes, dice: random.Random) -> bytes:
        spot = dice.randrange(len(text) // 10, len(text) - size)
        return text[:spot] + text[spot + size :]

    return change


def put(piece: bytes, over: int = 0) -> Damage:
    """A piece put in, or written over as many bytes."""

    def change(text: bytes, dice: random.Random) -> bytes:
        spot = dice.randrange(len(text) // 10, len(text) - over)
        return text[:spot] + piece + text[spot + over :]

    return change


def swap(before: bytes, after: bytes) -> Damage:
    """One of many like places is written otherwise."""

    def change(text: bytes, dice: random.Random) -> bytes:
        parts = text.split(before, dice.randrange(1, max(text.count(before), 2)))
        return before.join(parts[:-1]) + after + parts[-1] if len(parts) > 1 else text

    return change


def flip(text: bytes, dice: random.Random) -> bytes:
    changed = bytearray(text)
    changed[dice.randrange(len(text) // 10, len(text))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def packed(change: Damage) -> Damage:
    """The same to the compressed file."""
    return lambda text, dice: change(gzip.compress(text, mtime=0), dice)


DAMAGES: dict[str, Damage] = {
    "cut short": cut,
    "a byte lost": lose(1),
    "40 bytes lost": lose(40),
    "4 kB lost": lose(4096),
    "a bit flipped": flip,
    "a byte of 0xff": put(b"\xff", 1),
    "4 kB of zeros written over": put(bytes(4096), 4096),
    "4 kB of zeros put in": put(bytes(4096)),
    "a quote put in": put(b'"'),
    "a brace put in": put(b"{"),
    "a closing brace put in": put(b"}"),
    "a bracket put in": put(b"]"),
    "a backslash put in": put(b"\\"),
    "300 kB of blanks put in": put(b" " * 300_000),
    "another document put in": put(b'{"traceEvents":[{"ph":"X","name":"a"}]}'),
    "a value missing": swap(b'"dur":', b'"dur"'),
    "a comma missing": swap(b"},", b"}"),
    "a key twice": swap(b'"ts":', b'"ts":1,"ts":'),
    "a number as text": swap(b'"dur":', b'"dur":"x","dur2":'),
    "compressed, cut short": packed(cut),
    "compressed, a bit flipped": packed(flip),
    "compressed, a byte lost": packed(lose(1)),
    "compressed, 4 kB of zeros": packed(put(bytes(4096), 4096)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path, nargs="?", default=sample())
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, help="where the figures are written as JSON")
    options = parser.parse_args()
    figures = measure(options.trace, options.seeds)
    for row in figures["rows"]:
        print(f"{row['damage']:30} {row['kept_pct_min']:6.1f} % kept  {row['silent']} silent")
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
    return int(any(row["differ"] or row["silent"] for row in figures["rows"]))


def sample() -> Path:
    return next(path for path in sorted((ROOT / "htk/traces/sample").glob("*.json.gz")))


def measure(trace: Path, seeds: int) -> dict[str, Any]:
    """Return for each damage what was kept, and how often readers differed or were silent."""
    data = trace.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    undamaged = read(text, native).rows
    rows = []
    for name, change in DAMAGES.items():
        kept, differ, silent = [], 0, 0
        for seed in range(seeds):
            damaged = change(text, random.Random(seed))
            compiled, slow = (read(damaged, engine) for engine in (native, pure))
            differ += content(compiled) != content(slow)
            kept.append(compiled.rows)
            silent += compiled.rows < undamaged and not compiled.issues and not compiled.truncated
        rows.append(
            {
                "damage": name,
                "kept_pct_min": round(100 * min(kept) / undamaged, 1),
                "kept_pct_max": round(100 * max(kept) / undamaged, 1),
                "differ": differ,
                "silent": silent,
            }
        )
    return {"events": undamaged, "seeds": seeds, "rows": rows}


def read(data: bytes, engine: Any) -> RawEvents:
    raw: RawEvents = engine.parse_events(open_stream(io.BytesIO(data)))
    return raw


def content(raw: RawEvents) -> tuple[Any, ...]:
    cells = {name: raw.dense(name).to_pylist() for name in NAMES if raw.has(name)}
    return raw.rows, repr(cells), repr(raw.header), raw.truncated


if __name__ == "__main__":
    sys.exit(main())
