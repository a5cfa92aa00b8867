"""How much a collective moves: algorithm and bus bandwidth as NCCL's own tests define them.

algorithm bandwidth = S / t, bus bandwidth = algorithm bandwidth × factor, in GB/s of 1e9 bytes.
S is the buffer of all_reduce, broadcast and reduce; the whole output of all_gather; the whole
input of reduce_scatter; the whole buffer of one rank in all_to_all; what lies at the root in
gather and scatter; the message of a send. The factor makes the figure comparable with the speed of
a link, whatever the number of ranks. Where multicast does part of the work it may exceed that.
"""

from collections.abc import Sequence

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import Floats, Ints

UNKNOWN = -1

_WHOLE = ("broadcast", "reduce", "send", "recv", "send_recv", "hypercube")
_SHARED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


def find_bus_factor(kind: str, ranks: int) -> float | None:
    """Bus bandwidth over algorithm bandwidth; None: not defined for that type."""
    if ranks < 2:
        return 0.0
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in _SHARED:
        return (ranks - 1) / ranks
    return 1.0 if kind in _WHOLE else None


def algorithm_bytes(kind: str, in_bytes: int, out_bytes: int, ranks: int) -> int | None:
    """S of one rank's call (negative: unknown); None: not defined, or too little is known."""
    into = max(in_bytes, UNKNOWN)
    out = max(out_bytes, UNKNOWN)
    has_size = ranks > 0
    if kind in ("all_reduce", "broadcast", "reduce"):
        size = into if into >= 0 else out
    elif kind in ("all_gather", "gather"):
        size = max(out, into * ranks if has_size and into >= 0 else UNKNOWN)
    elif kind in ("reduce_scatter", "scatter"):
        size = max(into, out * ranks if has_size and out >= 0 else UNKNOWN)
    elif kind == "hypercube":
        size = (
            max(into, out) * (ranks - 1) // ranks if has_size and max(into, out) >= 0 else UNKNOWN
        )
    elif kind in ("all_to_all", "send", "recv", "send_recv"):
        size = max(into, out)
    else:
        return None
    return size if size >= 0 else None


def compute_traffic(
    kind: Ints, kinds: Sequence[str], in_bytes: Ints, out_bytes: Ints, ranks: Ints, own_bytes: Ints
) -> tuple[Floats, Floats]:
    """S and factor of each call (NaN: unknown). Each distinct call is worked out once.

    `kind` numbers `kinds` (negative: unknown). `own_bytes` is what a rank of an all-to-all-v keeps
    for itself, where its splits are known (negative: unknown); the rest is what it moves.
    """
    columns = (kind, in_bytes, out_bytes, ranks, own_bytes)
    dense = [np.unique(c, return_inverse=True)[1].ravel() for c in columns]  # sizes are large
    alike = Groups.by_keys(dense)
    sizes = np.full(len(alike), np.nan)
    factors = np.full(len(alike), np.nan)
    for row, first in enumerate(alike.first_row.tolist()):
        code, into, out, n, own = (int(c[first]) for c in columns)
        name = kinds[code] if code >= 0 else ""
        total = algorithm_bytes(name, into, out, n)
        message = name in ("send", "recv", "send_recv")  # whatever the group's size
        ratio = 1.0 if message else find_bus_factor(name, n) if n > 0 else None
        if own >= 0 and total is not None and name == "all_to_all":
            ratio = (total - own) / total if total else 0.0
        sizes[row] = np.nan if total is None else total
        factors[row] = np.nan if ratio is None else ratio
    return sizes[alike.group_ids], factors[alike.group_ids]
