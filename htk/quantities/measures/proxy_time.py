"""Time of NCCL's proxy threads in each collective, by what they wait for.

A proxy moves a buffer in steps, several at once. A step of a send waits for the GPU to fill the
buffer, for the receiver to have room, then for the network to take it; a step of a receive waits
until the data is there (for the sender or the network: its record does not tell them apart),
flushes it, and waits for the GPU to take it. An instant with k steps open counts 1/k for what each
waits for, so that parts add up to the time in which any step is open.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, read_keys, read_numbers
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NONE, Ints, Mask

DIRECTIONS = ("send", "receive")
PARTS = ("gpu_wait", "peer_wait", "network", "data_wait", "flush")
_STEPS = {
    "SendGpuWait": ("send", "gpu_wait"),
    "SendPeerWait": ("send", "peer_wait"),
    "SendWait": ("send", "network"),
    "RecvWait": ("receive", "data_wait"),
    "RecvFlushWait": ("receive", "flush"),
    "RecvGpuWait": ("receive", "gpu_wait"),
}
_TRANSFERS = ("SendWait", "RecvWait")  # one for each step of the proxy


@dataclass(frozen=True)
class ProxySteps:
    """States of proxy steps that have both times, a row each."""

    call: Ints  # number of the call that was asked for; NONE: of none of them
    direction: Ints  # number of DIRECTIONS
    part: Ints  # number of PARTS
    channel: Ints
    peer: Ints  # in the communicator; NONE: not recorded
    start: Ints
    end: Ints
    is_transfer: Mask
    untimed: int  # states without both times

    @classmethod
    def from_records(cls, proxy_steps: pa.Table, records: pa.Table) -> "ProxySteps":
        """`records`: hash of the communicator, rank in it and event of the record of each call;
        null: it has none."""
        code, names = codes_of(proxy_steps["name"])
        listed = names.to_pylist()
        state = np.array([_STEPS.get(n or "", ("", "")) != ("", "") for n in listed] + [False])
        timed = mark_valid(proxy_steps["start_ns"]) & mark_valid(proxy_steps["end_ns"])
        start = read_numbers(proxy_steps["start_ns"], 0)
        end = read_numbers(proxy_steps["end_ns"], 0)
        is_state = state[code]
        chosen = np.flatnonzero(is_state & timed & (end >= start))
        direction, part = (
            np.array([options.index(_STEPS[n][k]) if n in _STEPS else NONE for n in listed])
            for k, options in enumerate((DIRECTIONS, PARTS))
        )
        channel = read_keys(proxy_steps["channel"])
        peer = read_keys(proxy_steps["peer"])
        return cls(
            _call_of(proxy_steps, records)[chosen],
            direction[code[chosen]],
            part[code[chosen]],
            channel[chosen],
            peer[chosen],
            start[chosen],
            end[chosen],
            np.array([n in _TRANSFERS for n in listed], bool)[code[chosen]],
            int((is_state & ~timed).sum()),
        )

    def only(self, chosen: Mask) -> "ProxySteps":
        return replace(
            self,
            call=self.call[chosen],
            direction=self.direction[chosen],
            part=self.part[chosen],
            channel=self.channel[chosen],
            peer=self.peer[chosen],
            start=self.start[chosen],
            end=self.end[chosen],
            is_transfer=self.is_transfer[chosen],
        )


def _call_of(proxy_steps: pa.Table, records: pa.Table) -> Ints:
    """Return the row of `records` that each step is of (NONE: of none of them)."""
    own = proxy_steps.select(["comm_hash", "comm_rank", "event"])
    both = pa.concat_tables([records.select(own.column_names), own])
    hashed = np.unique(read_numbers(both["comm_hash"], 0), return_inverse=True)[1].ravel()
    others = [read_keys(both[c]) for c in ("comm_rank", "event")]
    key = np.column_stack([hashed, *others])
    first = key[: records.num_rows]
    rest = key[records.num_rows :]
    call = row_of(first, rest)
    return np.where((rest[:, 1:] >= 0).all(axis=1), call, NONE)


@dataclass(frozen=True)
class ProxyTime:
    """For each group of steps the time in which any is open, and its parts, in ns."""

    open_ns: Ints
    part_ns: Ints  # a column for each of PARTS; they add up to it
    steps: Ints


def proxy_time(steps: ProxySteps, groups: Groups) -> ProxyTime:
    """Return the time of each group of steps."""
    opened = len(steps.start)
    lane = np.concatenate([groups.group_ids, groups.group_ids])
    time = np.concatenate([steps.start, steps.end])
    change = np.zeros((2 * opened, len(PARTS)), np.int64)
    change[np.arange(opened), steps.part] = 1
    change[opened + np.arange(opened), steps.part] = -1
    order = order_by(lane, time)
    lane = lane[order]
    time = time[order]
    running = np.cumsum(change[order], axis=0)  # of a lane that is over nothing is open
    last = np.append(mark_heads(lane)[1:], True) if opened else np.empty(0, bool)
    width = np.where(last, 0, np.append(time[1:], 0) - time)
    active = running.sum(axis=1)
    width = np.where(active > 0, width, 0)
    share = width[:, None] * running // np.maximum(active, 1)[:, None]
    rest = width - share.sum(axis=1)  # a nanosecond is never split: the first part has it
    share[np.arange(len(share)), (running > 0).argmax(axis=1)] += rest
    part_ns = np.zeros((len(groups), len(PARTS)), np.int64)
    np.add.at(part_ns, lane, share)
    count = np.bincount(groups.group_ids[steps.is_transfer], minlength=len(groups))
    return ProxyTime(part_ns.sum(axis=1), part_ns, count.astype(np.int64))
