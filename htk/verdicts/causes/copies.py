"""Copies hold the GPU: many small ones, or large ones that nothing hides."""

import re
from dataclasses import replace

import numpy as np

from htk.base.columns.arrow import match_texts, read_numbers
from htk.base.columns.types import NONE, Floats, Mask
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import hidden_copies, shorter_activities
from htk.verdicts.causes.recorded import CauseEvidence
from htk.whatif.step_model import StepModel

FINDING = "copies hold the GPU"
SMALL = "many small copies"
_SMALL_BYTES = 64 << 10
_MANY = 100
_LEAST_PCT = 1.0  # of the recorded window
_TO_HOST = re.compile(r"HtoD|DtoH|Host|PAGED|PINNED|\([MH]2D|D2[MH]\)", re.IGNORECASE)
_PAGEABLE = re.compile(r"pageable|\(M2D|D2M\)", re.IGNORECASE)


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    work = recorded.work
    copies = match_texts(work.totals["activity"], "copy".__eq__)
    size = read_numbers(work.totals["size_bytes"], NONE)
    small = copies & (size >= 0) & (size < _SMALL_BYTES)
    causes = []
    if work.count(small) >= _MANY:
        causes.append(_describe_small(recorded, small))
    large = copies & ~small
    exposed = int(work.left[large].sum())
    if 100 * exposed >= _LEAST_PCT * max(recorded.window_ns, 1):
        causes.append(_describe_large(recorded, large, work.take(large, 1.0)))
    return [replace(cause, is_lost=True) for cause in causes]


def _describe_small(recorded: CauseEvidence, small: Mask) -> Cause:
    work = recorded.work
    return work.cause(
        small,
        work.take(small, 1.0),
        SMALL,
        f"{work.count(small)} copies below {_SMALL_BYTES >> 10} KiB, "
        f"{recorded.spent(int(work.length[small].sum()))}",
        "gather them into one copy; build tensors on the GPU",
        "memory_bandwidth",
        shorter_activities("replace", _without_small_copies),
    )


def _without_small_copies(model: StepModel) -> Floats:
    kernels = model.facts.tables["kernels"]
    rows = model.facts.rows
    size = read_numbers(kernels["size_bytes"], NONE)[rows]
    copies = match_texts(kernels["activity"], "copy".__eq__)[rows]
    is_small = copies & (size >= 0) & (size < _SMALL_BYTES)
    return np.where(is_small, 0.0, model.lengths().astype(np.float64))


def _describe_large(recorded: CauseEvidence, large: Mask, exposed: int) -> Cause:
    """Return the cause of copies that nothing runs beside: how they are sped up or hidden depends
    on where they lead, and on whether the host's memory is pinned."""
    work = recorded.work
    names = np.array([name or "" for name in work.names])
    name = names[work.name]
    pageable = large & np.array([bool(_PAGEABLE.search(n)) for n in name.tolist()], bool)
    by_host = large & np.array([bool(_TO_HOST.search(n)) for n in name.tolist()], bool)
    length = work.length
    moved, took = _sum_moved(recorded, large)
    rate = f" at {moved / took:.1f} GB/s" if took and moved else ""
    if 2 * length[pageable].sum() > length[large].sum():
        kind = "pageable"
        ways = recorded.program.name_tools("pin_memory, cudaHostAlloc")
        advice = f"pin the host's memory{ways}, then copy asynchronously on a stream of its own"
    elif 2 * length[by_host].sum() > length[large].sum():
        kind = "between host and GPU"
        advice = (
            "at the rate of PCIe already where memory is pinned: offload less, or prefetch on a "
            "stream of its own beside compute"
        )
    else:
        kind = "within or between GPUs"
        advice = "avoid the copy (views, in place, contiguous layouts), or hide it beside compute"
    return work.cause(
        large,
        exposed,
        FINDING,
        f"{recorded.spent(exposed)} of copies with nothing beside them: {work.count(large)} "
        f"copies, mostly {kind}{rate}",
        advice,
        "memory_bandwidth",
        hidden_copies(),
    )


def _sum_moved(recorded: CauseEvidence, rows: Mask) -> tuple[int, int]:
    """Return the bytes of some copies whose size is known, and the time that these take."""
    work = recorded.work
    size = read_numbers(work.totals["size_bytes"], NONE)
    sized = rows & (size >= 0)
    return int((size * work.calls)[sized].sum()), int(work.length[sized].sum())
