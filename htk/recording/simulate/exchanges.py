"""Messages between ranks: each moves once both its ends have begun, and a call ends with its last.

Stages of a pipeline are timed one after the other until each waits for another one, so an end is
noted when its stage comes to it, and the message is timed by the end that comes second. Messages of
a ring within a stage are timed at once: all ranks of a stage come to a call together.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from htk.base.columns.types import Floats, Ints
from htk.recording.simulate.config import Config
from htk.recording.simulate.groups import Group
from htk.recording.simulate.instructions import Exchange, RankMessage
from htk.recording.simulate.plants import Plants
from htk.recording.simulate.stages import Stage

_Key = tuple[
    str, int, int, int
]  # kind of group, sending and receiving stage, number of the message


@dataclass
class Moved:
    """A message on all ranks of a stage: by the end that noted it first, then by both."""

    start: Ints  # of the first end's call
    share: Floats | float  # of the first end's time that other work ran beside it
    crowd: int  # messages of that call that go the same way
    times: tuple[Ints, Ints] | None = None  # since both ends had begun, until it was there


@dataclass
class ExchangeCall:
    """A call on all ranks of a stage."""

    start: Ints
    peers: list[Ints] = field(default_factory=list)  # of each message, the ranks at its other end
    moved: list[Moved] = field(default_factory=list)

    @property
    def is_met(self) -> bool:
        """Whether all its messages have another end that has begun."""
        return all(message.times is not None for message in self.moved)

    @property
    def common(self) -> Ints:
        """When the last of its peers had come, in ns."""
        return np.asarray(np.maximum.reduce([began for began, _ in self._list_times()]))

    @property
    def end(self) -> Ints:
        return np.asarray(np.maximum.reduce([ended for _, ended in self._list_times()]))

    def _list_times(self) -> list[tuple[Ints, Ints]]:
        return [message.times for message in self.moved if message.times is not None]

    def told(self, ranks: Ints) -> "ToldExchange":
        """Return what the sidecar tells; `ranks`: those of the stage."""
        last = ranks
        latest = self.start
        for peer, (began, _) in zip(self.peers, self._list_times(), strict=True):
            last = np.where(began > latest, peer, last)
            latest = np.maximum(latest, began)
        took = [ended - began for began, ended in self._list_times()]
        return ToldExchange(last, self.peers, took)


@dataclass(frozen=True)
class ToldExchange:
    """Of a call, by rank of its stage: who came last, and of each message the peer and the time in
    which it moved."""

    last_rank: Ints
    peers: list[Ints]
    moved_ns: list[Ints]


class Exchanges:
    """The messages of a step that wait for their other end."""

    def __init__(
        self,
        config: Config,
        groups: dict[str, Group],
        plants: Plants,
        spread: Callable[[int], Floats],
        slowed: float,
    ) -> None:
        """`spread` draws factors for so many messages; compute slows messages by `slowed`."""
        self._config = config
        self._groups = groups
        self._plants = plants
        self._spread = spread
        self._slowed = slowed
        self._waiting: dict[_Key, Moved] = {}
        self.posted = 0

    def post(
        self, stage: Stage, exchange: Exchange, start: Ints, share: Floats | None
    ) -> ExchangeCall:
        """Note a call that begins then on each rank of its stage."""
        self.posted += 1
        call = ExchangeCall(start)
        beside = 0.0 if share is None else share
        for message in exchange.messages:
            crowd = sum(other.kind == message.kind for other in exchange.messages)
            if exchange.group == "pipeline":
                moved, peers = self._time_across(stage, message, Moved(start, beside, crowd))
            else:
                moved, peers = self._time_within(stage, message, Moved(start, beside, crowd))
            call.moved.append(moved)
            call.peers.append(peers)
        return call

    def _time_across(self, stage: Stage, message: RankMessage, end: Moved) -> tuple[Moved, Ints]:
        """Return a message between two stages, timed if this is its second end, and its peers."""
        other = (stage.number + message.shift) % self._config.pipeline_parallel
        here = np.array(stage.ranks)
        peers = here + (other - stage.number) * self._config.stage_ranks
        sends = message.kind == "send"
        way = (stage.number, other) if sends else (other, stage.number)
        first = self._waiting.pop((message.group, *way, message.number), None)
        if first is None:
            self._waiting[message.group, *way, message.number] = end
            return end, peers
        ends = (here, peers) if sends else (peers, here)
        self._time(message, first, end, *ends)
        return first, peers

    def _time_within(self, stage: Stage, message: RankMessage, end: Moved) -> tuple[Moved, Ints]:
        """Return a message of a ring among ranks of one stage, and its peers."""
        here = np.array(stage.ranks)
        peers = self._groups[message.group].shifted(message.shift)[here]
        theirs = _at_peers(end, peers - stage.ranks.start)
        self._time(message, end, theirs, here, peers)
        return end, peers

    def _time(
        self, message: RankMessage, first: Moved, second: Moved, low: Ints, high: Ints
    ) -> None:
        """Time a message from the ranks `low` to `high`; messages of one call share the links."""
        node = self._config.gpus_per_node
        far = low // node != high // node
        took = np.where(far, message.far_ns, message.near_ns) * self._spread(len(low))
        took = took * self._plants.message_factor(low, high)
        took = took * max(first.crowd, second.crowd)
        took = took * (1 + self._slowed * (first.share + second.share) / 2)
        began = np.maximum(first.start, second.start)
        first.times = began, began + took.astype(np.int64)


def _at_peers(end: Moved, peers: Ints) -> Moved:
    """Return the end of a message on other ranks of the stage, by their places in it."""
    share = end.share[peers] if isinstance(end.share, np.ndarray) else end.share
    return Moved(end.start[peers], share, end.crowd)
