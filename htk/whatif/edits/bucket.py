"""Gradients reduced in larger or smaller buckets.

Buckets that are put together start when the last of them is ready and pay one latency; one that is
split starts in part as soon as so much of its compute is done. A bucket is closed by the parameter
that fills it: it is split into no more pieces than products make gradients in it. One twice as
large as the smallest is taken for one parameter, which cannot be split.
"""

import re

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.errors import UsageError
from htk.whatif.fsdp_units import compute_lane, find_gradient_products, waited_for
from htk.whatif.parallelism import find_sharded, mark_replicating
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import Work, insert_works
from htk.whatif.transfers import find_latencies

NAME = "bucket"
HELP = "Size of the buckets in which DDP reduces gradients: 100MB."

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", re.I)
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST_PIECES = 64
_PARAMETERS = 0.015  # of the step, one sigma: where a bucket ends is up to sizes of parameters


def read_size(value: str) -> float:
    """Return the bytes of a bucket."""
    match = _SIZE.fullmatch(value.strip())
    size = float(match[1]) * _SCALE[match[2].upper()] if match else 0.0
    if size <= 0:
        raise UsageError(f"{NAME} {value!r}: a size such as 100MB was expected")
    return size


def apply(model: StepModel, value: str) -> StepModel:
    size = read_size(value)
    reduces = mark_replicating(model)
    if not reduces.any() or find_sharded(model) is not None:
        raise UsageError(f"{NAME}: the step holds no buckets of gradients, as DDP reduces them")
    acts = model.graph.activities
    fixed = find_latencies(model)
    length = model.lengths().astype(np.float64)
    works: list[Work] = []
    for rank in model.graph.ranks:
        buckets = np.flatnonzero(reduces & (acts.rank == rank))
        buckets = buckets[order_by(acts.start[buckets])]
        _put_together(model, buckets, size, length, fixed)
        first = len(acts.start) + len(works)
        works += _split_buckets(model, buckets, (size, first), length, fixed)
    changed = model.with_lengths(reduces, length)
    return (
        insert_works(changed, works)
        .with_uncertainty("communication", 0.1)
        .with_uncertainty("structure", _PARAMETERS)
        .with_assumption(
            "gradients become ready evenly over the compute of their bucket; latency is paid once"
        )
    )


def _put_together(
    model: StepModel,
    buckets: Ints,
    size: float,
    length: NDArray[np.float64],
    fixed: NDArray[np.float64],
) -> None:
    """All but the last of each bucket take no time, which takes that of their bytes."""
    moving = 0.0
    held = 0.0
    for k, bucket in enumerate(buckets.tolist()):  # some tens of buckets
        moving += max(length[bucket] - fixed[bucket], 0.0)
        held += float(model.facts.in_bytes[bucket])
        last = k + 1 == len(buckets)
        if not last and held + float(model.facts.in_bytes[buckets[k + 1]]) <= size:
            length[bucket] = 0
            continue
        length[bucket] = fixed[bucket] + moving
        moving = 0.0
        held = 0.0


def _split_buckets(
    model: StepModel,
    buckets: Ints,
    wanted: tuple[float, int],
    length: NDArray[np.float64],
    fixed: NDArray[np.float64],
) -> list[Work]:
    """Pieces of buckets that are larger than wanted, each ready with its share of the compute
    before it, and sent behind the piece or bucket before it; the first gets the wanted number."""
    size, first = wanted
    acts = model.graph.activities
    rank = int(acts.rank[buckets[0]])
    lane = compute_lane(model, rank)
    position = {int(a): k for k, a in enumerate(lane.tolist())}
    back = np.flatnonzero(model.facts.backward[lane])
    low = int(back[0]) if len(back) else 0
    works: list[Work] = []
    cap = int(model.facts.in_bytes[buckets[1:-1]].min(initial=1 << 62))
    weights = sorted(position[kernel] for kernel, _ in find_gradient_products(model, [lane])[0])
    sent: tuple[int, ...] = ()
    for bucket in buckets.tolist():
        ready = position.get(waited_for(model, bucket, lane), low)
        bytes_ = int(model.facts.in_bytes[bucket])
        pieces = min(int(bytes_ / size), _MOST_PIECES)
        if weights:
            before, after = np.searchsorted(weights, [low, ready + 1]).tolist()
            pieces = min(pieces, after - before)
        if pieces > 1 and ready > low and bytes_ < 2 * cap:
            each = float(fixed[bucket] + max(length[bucket] - fixed[bucket], 0.0) / pieces)
            ends = np.cumsum(acts.length[lane[low : ready + 1]])
            for k in range(1, pieces):
                end = low + int(np.searchsorted(ends, ends[-1] * k / pieces))
                group = int(model.graph.src[model.run_edge[bucket]])  # where its ranks meet
                joined = () if model.facts.single[bucket] else (group, k)
                works.append(
                    Work(
                        bucket,
                        each,
                        (int(lane[end]), *sent),
                        (bucket,),
                        collective="all_reduce",
                        joined=joined,
                    )
                )
                sent = (first + len(works) - 1,)
            length[bucket] = each
        sent = (bucket,)
        low = min(ready + 1, len(lane) - 1)
    return works
