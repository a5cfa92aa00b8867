"""The pipelines of a profiled job: which rank is which stage of which replica, told by messages.

Between two neighbours the first message that arrives in a step is an activation, so its sender is
the stage before. In interleaved schedules the last stage sends to the first: that is the rank which
sends before it receives. Of two stages, which send both to each other, a message is of the pass
that was launched before it.

What collectives mean follows from the stages of their ranks: one stage reduces gradients over its
replicas; several stages reduce the gradient of a shared embedding or the norm of all gradients,
which is a few numbers.
"""

from dataclasses import dataclass

import numpy as np

from htk.answers.export.reductions import FEW_ELEMENTS
from htk.base.columns.arrow import read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.errors import MissingTable
from htk.base.schema.operation_types import CODES
from htk.quantities.derived.collective_rows import CollectiveRows

MESSAGES = ("send", "recv", "send_recv")
_LOG_THEM = "log rows with htk.capture(operations=True)"
_OF_REPLICAS = {
    "all_gather": CODES["params_all_gather"],
    "reduce_scatter": CODES["grads_reduce_scatter"],
    "all_reduce": CODES["grads_all_reduce"],
}


@dataclass(frozen=True)
class Messages:
    """Sends and receives of the ranks that stand for a worker, within steps."""

    row: Ints  # of the collectives
    rank: Ints
    peer: Ints
    sends: Mask
    step: Ints
    end: Ints
    after_backward: Mask  # the pass launched before it was a backward

    @classmethod
    def from_rows(
        cls,
        rows: CollectiveRows,
        step: Ints,
        after_backward: Mask,
        speakers: dict[int, int],
        recorded: list[int],
    ) -> "Messages":
        """Collect them; ranks that share layers are the one that stands for them."""
        several = rows.is_type("send_recv")
        unknown = rows.is_type(*MESSAGES) & (several | (rows.peer < 0))
        if unknown.any():
            row = int(np.argmax(unknown))
            reason = (
                "a kernel that sends and receives several messages, which were not recorded"
                if several[row]
                else f"a {rows.types[rows.type[row]]} whose peer was not recorded"
            )
            raise MissingTable(
                f"rank {rows.rank[row]} has {reason}, so that stages cannot be told; {_LOG_THEM}"
            )
        missing = rows.is_type(*MESSAGES) & ~np.isin(rows.peer, recorded)
        if missing.any():
            row = int(np.argmax(missing))
            raise MissingTable(
                f"rank {rows.peer[row]} was not recorded, with which rank {rows.rank[row]} "
                "exchanges activations; rows of a job need the profiles of all ranks"
            )
        spoken = [rank for rank in recorded if speakers.get(rank, rank) == rank]
        chosen = np.flatnonzero(
            rows.is_type(*MESSAGES) & np.isin(rows.rank, spoken) & (step >= 0) & rows.timed
        )
        return cls(
            chosen,
            rows.rank[chosen],
            np.array([speakers.get(p, p) for p in rows.peer[chosen].tolist()], np.int64),
            rows.is_type("send")[chosen],
            step[chosen],
            rows.end[chosen],
            after_backward[chosen],
        )

    @property
    def in_both_ways(self) -> bool:
        """Whether some rank sends to its only peer after forwards and after backwards: interleaved,
        of two stages, which are each other's next stage."""
        if (Groups.by_keys(self.rank).distinct(self.peer) > 1).any():
            return False
        pairs = Groups.by_keys(np.stack([self.rank, self.peer], axis=1)[self.sends])
        return bool((pairs.distinct(self.after_backward[self.sends].astype(np.int64)) > 1).any())

    @property
    def of_forwards(self) -> Mask:
        """Return which messages carry activations, as the pass before their sending tells. The n-th
        to arrive from a rank is the n-th that it sent."""
        source = np.where(self.sends, self.rank, self.peer)
        target = np.where(self.sends, self.peer, self.rank)
        columns = [source, target, self.step]
        nth = Groups.by_keys([*columns, self.sends.astype(np.int64)]).rank_within(self.end)
        ends = Groups.by_keys([*columns, nth])
        forward = ends.max((self.sends & ~self.after_backward).astype(np.int64))
        return np.asarray(forward[ends.group_ids] > 0)


@dataclass(frozen=True)
class Pipelines:
    """The rank of each [replica, stage]."""

    ranks: Ints
    following: dict[int, int]  # the rank that activations go to
    is_interleaved: bool  # the last stage sends activations to the first

    @classmethod
    def from_messages(cls, messages: Messages, workers: Ints) -> "Pipelines":
        following = _find_following(messages)
        heads = sorted(set(workers.tolist()) - set(following.values()))
        is_interleaved = not heads or messages.in_both_ways
        if not heads:
            heads = _sending_first(messages, following)
        lines = [_follow_line(rank, following) for rank in heads]  # a loop over ranks
        if {rank for line in lines for rank in line} != set(workers.tolist()) or (
            len({len(line) for line in lines}) > 1 or sum(map(len, lines)) > len(workers)
        ):
            raise MissingTable(
                "ranks pass activations on in lines of different length, or in a circle without a "
                f"first stage, so that stages cannot be told; {_LOG_THEM}"
            )
        return cls(np.array(lines, np.int64), following, is_interleaved)

    def replica_and_stage(self, rank: Ints) -> tuple[Ints, Ints]:
        """Return both for each of these ranks; NONE for a rank of no pipeline."""
        order = np.argsort(self.ranks, axis=None)
        ordered = self.ranks.ravel()[order]
        position = np.minimum(np.searchsorted(ordered, rank), len(ordered) - 1)
        cell = order[position]
        stages = self.ranks.shape[1]
        present = ordered[position] == rank
        return np.where(present, cell // stages, NONE), np.where(present, cell % stages, NONE)

    def types(
        self,
        rows: CollectiveRows,
        messages: Messages,
        ignored: Mask,
        recorded: list[int],
    ) -> Ints:
        """Return the type of operation of each collective; NONE for those that are none."""
        type_ = np.full(rows.length, NONE)
        onward = _are_activations(messages, self.following)
        if messages.in_both_ways:
            onward = messages.of_forwards
        for forward, way in ((True, "forward"), (False, "backward")):
            for sends, side in ((True, "send"), (False, "recv")):
                chosen = (onward == forward) & (messages.sends == sends)
                type_[messages.row[chosen]] = CODES[f"{way}_{side}"]
        spoken = np.isin(rows.rank, self.ranks) & (rows.group_size != 1)
        codes, listed = rows.group_ranks
        elements = read_numbers(rows.table["in_elements"], NONE)
        chosen = spoken & ~ignored & rows.is_type("all_to_all", *_OF_REPLICAS)
        for code in np.unique(codes[chosen]).tolist():  # few groups beside the collectives
            members = listed[code] if code >= 0 else ()
            own = chosen & (codes == code)
            _refuse_unknown(rows, own, members, recorded)
            _, stage = self.replica_and_stage(np.array(members, np.int64))
            stages = np.unique(stage)
            if len(stages) == 1 and len(members) == len(self.ranks):
                for name, operation in _OF_REPLICAS.items():
                    type_[own & rows.is_type(name)] = operation
                self._refuse(rows, own & rows.is_type("all_to_all"))
                continue
            few = rows.is_type("all_reduce") & (elements >= 0) & (elements <= FEW_ELEMENTS)
            type_[own & few] = CODES["clip_grads"]
            if sorted(stage.tolist()) == [0, self.ranks.shape[1] - 1]:
                shared = own & ~few & rows.is_type("all_reduce") & (elements >= 0)
                type_[shared] = CODES["embedding_grads_all_reduce"]
            self._refuse(rows, own & (type_ == NONE))
        return type_

    def _refuse(self, rows: CollectiveRows, other: Mask) -> None:
        if other.any():
            row = int(np.argmax(other))
            replicas, stages = self.ranks.shape
            raise MissingTable(
                f"this job has {rows.types[rows.type[row]]} among {rows.group_size[row]} ranks, "
                f"which are not the {replicas} replicas of one of its {stages} pipeline stages; "
                f"{_LOG_THEM}"
            )


def _refuse_unknown(
    rows: CollectiveRows, own: Mask, members: tuple[int, ...], recorded: list[int]
) -> None:
    row = int(np.argmax(own))
    if not members:
        raise MissingTable(
            f"the ranks of rank {rows.rank[row]}'s {rows.types[rows.type[row]]} were not recorded, "
            f"so that it cannot be told whether they share a pipeline stage; {_LOG_THEM}"
        )
    missing = sorted(set(members) - set(recorded))
    if missing:
        raise MissingTable(
            f"rank {missing[0]} was not recorded, with which rank {rows.rank[row]} shares a "
            f"{rows.types[rows.type[row]]}; rows of a job need the profiles of all ranks"
        )


def _follow_line(first: int, following: dict[int, int]) -> list[int]:
    line = [first]
    while following.get(line[-1], first) not in line:
        line.append(following[line[-1]])
    return line


def _are_activations(messages: Messages, following: dict[int, int]) -> Mask:
    """Return which messages go to the next stage, or come from the one before."""
    source = np.where(messages.sends, messages.rank, messages.peer)
    target = np.where(messages.sends, messages.peer, messages.rank)
    pairs = Groups.by_keys([source, target])
    onward = np.array([following.get(a) == b for a, b in pairs.keys.tolist()], bool)
    return np.asarray(onward[pairs.group_ids])


def _sending_first(messages: Messages, following: dict[int, int]) -> list[int]:
    """Return the ranks whose first activation of each step is one that they send."""
    rows = np.flatnonzero(_are_activations(messages, following))
    order = rows[np.lexsort((messages.end[rows], messages.step[rows], messages.rank[rows]))]
    keys = np.stack([messages.rank[order], messages.step[order]])
    first = order[np.append(True, (np.diff(keys) != 0).any(axis=0))[: len(order)]]
    sending = set(messages.rank[first[messages.sends[first]]].tolist())
    return sorted(sending - set(messages.rank[first[~messages.sends[first]]].tolist()))


def _find_following(messages: Messages) -> dict[int, int]:
    """Return the next stage's rank for each rank that has one, as both tell it in every step."""
    keys = np.stack([messages.rank, messages.peer, messages.step])
    order = np.lexsort((messages.end, *keys[::-1]))
    fresh = np.append(True, (np.diff(keys[:, order]) != 0).any(axis=0))[: len(order)]
    first = order[fresh]
    onward = set(zip(*(c[first][messages.sends[first]].tolist() for c in keys[:2]), strict=True))
    back = set(zip(*(c[first][~messages.sends[first]].tolist() for c in keys[1::-1]), strict=True))
    following = dict(onward)
    if onward != back or len(following) < len(onward) or len(set(following.values())) < len(onward):
        raise MissingTable(
            "ranks exchange messages with others than a stage before and one after, in the same "
            f"order in each step, so that stages cannot be told; {_LOG_THEM}"
        )
    return following
