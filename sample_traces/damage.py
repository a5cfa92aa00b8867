"""Makes the files under `damaged/` from a whole trace, each broken in one way that happens.

python sample_traces/damage.py
"""

import gzip
import re
from pathlib import Path

HERE = Path(__file__).parent
WHOLE = HERE / "kineto" / "rank0.pt.trace.json"


def damaged(trace: bytes) -> dict[str, bytes]:
    """Each file with its bytes."""
    middle = len(trace) // 2
    packed = gzip.compress(trace, mtime=0)
    return {
        # The process died while it wrote, or the disk was full.
        "truncated.pt.trace.json": trace[:middle],
        "truncated.pt.trace.json.gz": packed[: len(packed) * 2 // 3],
        # Names with a dictionary in them, before 2026-07.
        "unescaped_quote.pt.trace.json": trace.replace(
            b'"name": "c10d::allreduce_"', b'"name": "step {"lr": 0.1}"', 1
        ),
        # Occupancy of a kernel on a device that reports no SMs, before 2026-06.
        "bare_inf.pt.trace.json": re.sub(
            rb'"blocks per SM": [\d.]+', b'"blocks per SM": inf', trace, count=1
        ),
        "control_characters.pt.trace.json": trace.replace(
            b'"name": "record_param_comms"', b'"name": "record_\x01param\n_comms"', 1
        ),
        # Killed before the first byte.
        "empty.pt.trace.json": b"",
        "not_a_trace.json": b'{"epoch": 3, "loss": [2.5, 2.25, 2.125]}\n',
    }


def main() -> None:
    for name, data in damaged(WHOLE.read_bytes()).items():
        (HERE / "damaged" / name).write_bytes(data)


if __name__ == "__main__":
    main()
