"""A recording made large: its events again and again, each time later and with ids of their own."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
from isal import igzip

# In the order of a recording, so that no two repetitions share a value.
_SHIFTED = re.compile(
    rb'"(ts|id|correlation|External id|Ev Idx|Record function id|Python id|Python parent id)"'
    rb":(?: ?)([1-9][0-9]{0,17})(?=[.,}\s])"
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


def _template(events: bytes) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return the text with a place for each number that differs between repetitions, the numbers,
    and what each grows by from one repetition to the next."""
    pieces, kinds, numbers, copied = [], [], [], 0
    for match in _SHIFTED.finditer(events):
        pieces.append(events[copied : match.start(2)].replace(b"%", b"%%"))
        kinds.append(match[1] == b"ts")
        numbers.append(int(match[2]))
        copied = match.end()
    pieces.append(events[copied:].replace(b"%", b"%%"))
    first, is_time = np.array(numbers, np.int64), np.array(kinds, bool)
    times, ids = first[is_time], first[~is_time]
    duration = int(np.ptp(times)) + _GAP_US if len(times) else 0
    step = np.where(is_time, duration, int(ids.max(initial=0)))
    return b"%d".join(pieces), first, step
