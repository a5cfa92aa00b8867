"""Orders in which NCCL lays its channels: rings, and the trees up and down."""

import re
from collections import defaultdict

from htk.base.mappings import Fields
from htk.parsers.nccl_debug.message import Message

Hop = tuple[int, int]

_RING_OF_ALL = re.compile(r"^Channel (\d{1,4})(?:/\d{1,4})? :([ \d]{2,2048})$")
_RING = re.compile(r"^Ring (\d{1,4}) : (\d{1,9}) -> (\d{1,9}) -> (\d{1,9})\s{0,9}$")
_TREE = re.compile(r"\[(\d{1,4})\] (-?\d{1,9})/(-?\d{1,9})/(-?\d{1,9})->(-?\d{1,9})->(-?\d{1,9})")


class ChannelOrders:
    """Reads the lines that say who sends to whom on each channel, in ranks of a communicator."""

    def __init__(self) -> None:
        self._parts: dict[tuple[tuple[str, str], int], list[int]] = defaultdict(list)

    def read(self, message: Message, ranks: int) -> list[Fields] | None:
        """Return the hops that a line tells of; None: it is not such a line."""
        text = message.text.strip()
        if match := _RING_OF_ALL.match(text):
            order = [int(number) for number in match[2].split()]
            return self._read_ring(message.process, int(match[1]), order, ranks)
        if match := _RING.match(text):
            channel, before, own, after = (int(number) for number in match.groups())
            return _build_hop_rows("RING", channel, {(before, own), (own, after)})
        if not text.startswith("Trees "):
            return None
        rows = []
        for match in _TREE.finditer(text):
            channel, *below, own, above = (int(number) for number in match.groups())
            hops = {(child, own) for child in below} | {(own, above)}
            rows += _build_hop_rows("TREE", channel, {hop for hop in hops if min(hop) >= 0})
        return rows

    def _read_ring(
        self, process: tuple[str, str], channel: int, order: list[int], ranks: int
    ) -> list[Fields]:
        """A ring of many ranks takes several lines."""
        part = self._parts[process, channel]
        part += order
        if len(part) < ranks:
            return []
        del self._parts[process, channel]
        if sorted(part) != list(range(ranks)):
            return []
        return _build_hop_rows("RING", channel, set(zip(part, [*part[1:], part[0]], strict=True)))


def _build_hop_rows(algorithm: str, channel: int, hops: set[Hop]) -> list[Fields]:
    return [
        {"algorithm": algorithm, "channel": channel, "from_rank": sender, "to_rank": receiver}
        for sender, receiver in sorted(hops)
        if sender != receiver
    ]
