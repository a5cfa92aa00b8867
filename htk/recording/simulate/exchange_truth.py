"""The truth about calls with messages: one line for each call of a rank that was recorded.

A call waits for the latest of its peers. A message is known at both its ends by the group, the
ranks from and to which it goes, and its number among those.
"""

import json
from collections import defaultdict
from typing import TextIO

from htk.base.mappings import Fields
from htk.recording.simulate.groups import Group
from htk.recording.simulate.instructions import Exchange, RankMessage
from htk.recording.simulate.schedule import Timed


class ExchangeTruth:
    """Writes calls down, step after step."""

    def __init__(self, groups: dict[str, Group], lines: TextIO) -> None:
        self.lines = lines
        self._groups = groups
        self._before: defaultdict[tuple[str, int, int], int] = defaultdict(
            int
        )  # of a rank's messages

    def add(self, timed: Timed, ranks: range) -> None:
        """Add a step of a stage; `ranks`: all of the stage."""
        for row in timed.exchanges:
            exchange: Exchange = timed.program.what[row][0].exchange
            for column, rank in enumerate(timed.ranks):
                if timed.gpu_start[row, column] >= timed.since[column]:
                    facts = self._call(timed, row, column, rank - ranks.start, exchange)
                    self.lines.write(json.dumps(facts) + "\n")
        for (kind, group, shift), count in timed.program.messages.items():
            self._before[f"{kind} {group}", ranks.start, shift] += count

    def _call(
        self, timed: Timed, row: int, column: int, position: int, exchange: Exchange
    ) -> Fields:
        rank = timed.ranks[column]
        exchanged = timed.exchanges[row]
        group = self._groups[exchange.group]
        own = group.of_rank[rank]
        start = int(timed.gpu_start[row, column])
        end = int(timed.gpu_end[row, column])
        common = int(timed.common[row, column])
        messages = [
            self._describe_message(
                message, rank - position, rank, int(peers[position]), int(moved[position])
            )
            for message, peers, moved in zip(
                exchange.messages, exchanged.peers, exchanged.moved_ns, strict=True
            )
        ]
        return {
            "step": timed.step,
            "rank": rank,
            "group": group.names[own],
            "group_ranks": list(group.members[own]),
            "batched": exchange.batched,
            "start_ns": start,
            "end_ns": end,
            "wait_ns": common - start,
            "transfer_ns": end - common,
            "last_rank": int(exchanged.last_rank[position]),
            "messages": messages,
        }

    def _describe_message(
        self, message: RankMessage, first: int, rank: int, peer: int, moved_ns: int
    ) -> Fields:
        key = (
            f"{message.kind} {message.group}",
            first,
            message.shift % self._groups[message.group].size,
        )
        sends = message.kind == "send"
        return {
            "type": message.kind,
            "from": rank if sends else peer,
            "to": peer if sends else rank,
            "number": self._before[key] + message.number + 1,
            "bytes": message.bytes,
            "moved_ns": moved_ns,
        }
