"""A recording made large: its events again and again, each time later and with ids of their own."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
from isal import igzip

from htk.base.columns.types import Ints

# What differs from one repetition to the next: times, ids, and numbers of steps (they would begin
# a recording if they began anew).
_SHIFTED = re.compile(
    rb'"(?:(ts)|(id|correlation|External id|Ev Idx|Record function id|Python id|Python parent id))"'
    rb": ?([1-9][0-9]{0,17})(?=[.,}\s])|ProfilerStep#([0-9]{1,17})"
)
_GAP_US = 1000


def enlarged(trace: Path, target: Path, gigabytes: float) -> Path:
    """Write the trace's events until the text has that size; the file is compressed if its name
    ends in .gz."""
    with (gzip.open if trace.suffix == ".gz" else open)(trace, "rb") as stored:
        document = json.load(stored)
    events = json.dumps(document.pop("traceEvents"), indent=1)[1:-1].rstrip().encode()
    template, first, step = _template(events)
    write = (
        igzip.open(target, "wb", compresslevel=1) if target.suffix == ".gz" else target.open("wb")
    )
    with write as file:
        file.write(json.dumps(document)[:-1].encode() + b', "traceEvents": [')
        for k in range(max(1, round(gigabytes * 1e9 / len(events)))):
            file.write((b"," if k else b"") + template % tuple((first + k * step).tolist()))
        file.write(b"]}")
    return target


def _template(events: bytes) -> tuple[bytes, Ints, Ints]:
    """Return the text with a place for each number that differs between repetitions, the numbers,
    and what each grows by from one repetition to the next."""
    pieces, kinds, numbers, copied = [], [], [], 0
    for match in _SHIFTED.finditer(events):
        group = 4 if match[4] else 3
        pieces.append(events[copied : match.start(group)].replace(b"%", b"%%"))
        kinds.append(0 if match[1] else 1 if match[2] else 2)
        numbers.append(int(match[group]))
        copied = match.end()
    pieces.append(events[copied:].replace(b"%", b"%%"))
    first, kind = np.array(numbers, np.int64), np.array(kinds, np.int64)
    grows = [
        int(np.ptp(first[kind == 0])) + _GAP_US if (kind == 0).any() else 0,
        int(first[kind == 1].max(initial=0)),
        int(np.ptp(first[kind == 2])) + 1 if (kind == 2).any() else 0,
    ]
    return b"%d".join(pieces), first, np.array(grows, np.int64)[kind]
