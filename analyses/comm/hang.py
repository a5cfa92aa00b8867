"""Why a job hangs, from the flight recorders of its ranks."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from htk.core.analysis import analysis, with_coverage
from htk.errors import MissingTable
from htk.measures.call_patterns import wrong_turns
from htk.measures.desync import Mismatch, listed, mismatch, named
from htk.measures.flight import GroupId, Histories, Place, RecordedCall, cycle_among, histories
from htk.parsers.common.log_records import compact_json
from htk.schema import table
from htk.schema.columns import TEXT

RETURNS = table(
    finding=(
        TEXT,
        "missing_rank, wrong_group, type/size/dtype/order_mismatch, cycle, not_completed, "
        "cannot_decide, nothing_pending, waiting, or note (of what all completed, of who moved "
        "between dumps).",
    ),
    ranks=(TEXT, "Whom it is about: 0-2,7."),
    group=(TEXT, "Process group name."),
    group_desc=(TEXT, "Process group description."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    seq=(pa.int64(), "Sequence number of the call; for messages, their number between two ranks."),
    type=(TEXT, "What the call was."),
    text=(TEXT, "The finding in words."),
    frames=(TEXT, "Where Python stood, innermost first, one frame a line."),
)

_MOST_MISMATCHES = 10  # of completed calls: after the first of a group the pairing is unsure


@analysis(returns=RETURNS)
def hang(collectives: pa.Table, comm_groups: pa.Table) -> pa.Table:
    """Why does the job hang: who never came, who made another call, who only waits?

    From flight recorder dumps of all or some ranks. Causes come first, then who waits for them.
    A rank that never came to a collective is told from one that waits elsewhere itself; calls that
    differ are judged by the majority; waits that form a circle are named; what missing dumps
    leave open is said.
    """
    history = histories(collectives, comm_groups)
    if not history.calls:
        raise MissingTable(
            "no flight recorder dump among the files; set TORCH_FR_BUFFER_SIZE=2000 and "
            "TORCH_NCCL_DUMP_ON_TIMEOUT=1, and give the files comm_lib_trace_rank_*"
        )
    case = _Case(history)
    cycles = _cycles(case)
    turns = [] if cycles else _wrong_groups(case)
    astray = {rank for turn in turns for rank in turn.ranks}
    rows = [*_mismatches(case), *turns, *_missing(case, astray), *cycles]
    rows += _undecided(case)
    if not rows:
        rows += _complete(case)
    decided = any(f.decided for f in rows)
    if not case.waiting and not rows:
        rows.append(_nothing_pending(case))
    verdict = " ".join(f.words for f in rows[:4])
    excluded = sorted({r for f in rows for r in f.excluded})
    rows += [*_waiting(case), *_polls(case), *_notes(case)]
    answer = pa.Table.from_pylist([f.row(history) for f in rows], schema=RETURNS)
    return with_coverage(
        answer,
        verdict=verdict,
        decided=decided,
        dumps=listed(history.dumped),
        dumps_missing=listed(case.undumped) or None,
        exclude_ranks=compact_json(excluded) if excluded else None,
    )


@dataclass(frozen=True)
class _Finding:
    what: str
    ranks: tuple[int, ...]
    place: Place | None
    type: str | None
    words: str
    frames: str | None = None
    decided: bool = True
    excluded: tuple[int, ...] = ()  # without which a restart may go well

    def row(self, history: Histories) -> dict[str, Any]:
        group = self.place.group if self.place else None
        return {
            "finding": self.what,
            "ranks": listed(self.ranks),
            "group": group.name if group else None,
            "group_desc": history.descriptions.get(group) if group else None,
            "group_ranks": compact_json(group.ranks) if group and group.ranks else None,
            "seq": self.place.seq if self.place else None,
            "type": self.type,
            "text": self.words,
            "frames": self.frames,
        }


@dataclass
class _Case:
    """Who waits where, and for whom."""

    history: Histories
    waiting: dict[int, RecordedCall] = field(default_factory=dict)
    waits_for: dict[int, set[int]] = field(default_factory=dict)
    desync: dict[Place, Mismatch] = field(default_factory=dict)
    undumped: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        history = self.history
        for rank in history.dumped:
            call = history.waits_at(rank)
            if call is not None:
                self.waiting[rank] = call
                self.waits_for[rank] = history.waits_for(rank)
        self.desync = _first_mismatches(history)
        members = {r for p in history.at for r in history.members(p)}
        members |= {r for _, group in history.status for r in group.ranks}
        self.undumped = sorted(members - set(history.dumped))

    @property
    def stuck(self) -> dict[Place, list[int]]:
        """Ranks by the call that they wait at."""
        by_call: dict[Place, list[int]] = defaultdict(list)
        for rank, call in self.waiting.items():
            by_call[call.place].append(rank)
        return dict(by_call)

    def reaching(self, roots: Iterable[int]) -> set[int]:
        """Ranks that wait for one of these, over however many others."""
        before = defaultdict(set)
        for rank, others in self.waits_for.items():
            for other in others:
                before[other].add(rank)
        seen, todo = set(roots), list(roots)
        while todo:
            for rank in before[todo.pop()] - seen:
                seen.add(rank)
                todo.append(rank)
        return seen

    def type_at(self, call_site: Place) -> str:
        return next((c.type for _, c in sorted(self.history.at.get(call_site, {}).items())), "call")

    def at(self, call_site: Place) -> str:
        """A call in words."""
        group = self.group(call_site.group)
        if call_site.pair:
            sender, receiver = call_site.pair
            return f"message {call_site.seq} from rank {sender} to {receiver} in {group}"
        return f"{self.type_at(call_site)} number {call_site.seq} of {group}"

    def group(self, group: GroupId) -> str:
        description = self.history.descriptions.get(group)
        described = description and description != "undefined"
        return f"group {group.name} ({description})" if described else f"group {group.name}"


def _first_mismatches(history: Histories) -> dict[Place, Mismatch]:
    """The first disagreement of each group and pair of ranks, completed and not."""
    mismatches: dict[Place, Mismatch] = {}
    done: set[tuple[Any, ...]] = set()
    for call_site in sorted(history.at, key=lambda p: (p.seq, p.group.name, p.group.ranks)):
        lane = (call_site.group, call_site.pair, _completed(history, call_site))
        if lane in done or len(history.at[call_site]) < 2:
            continue
        difference = mismatch(history, call_site)
        if difference is not None:
            done.add(lane)
            mismatches[call_site] = difference
    return mismatches


def _completed(history: Histories, call_site: Place) -> bool:
    """Whether everybody who made a call has completed it: then it is not what hangs."""
    return all(call.completed for call in history.at[call_site].values())


def _mismatches(case: _Case) -> list[_Finding]:
    """Disagreements in calls that have not ended, those that ranks wait at first."""
    stuck = case.stuck
    order = sorted(
        (p for p in case.desync if not _completed(case.history, p)),
        key=lambda p: (p not in stuck, p.seq),
    )
    findings = []
    for call_site in order[:_MOST_MISMATCHES]:
        wrong = case.desync[call_site]
        who = named(wrong.culprits)
        blame = f"{who} at fault" if wrong.decided else f"no majority: cannot say who of {who}"
        findings.append(
            _Finding(
                f"{wrong.what}_mismatch",
                wrong.culprits,
                call_site,
                case.type_at(call_site),
                f"{case.at(call_site)} differs between ranks: {wrong.words}; {blame}.",
                _frames_at(case, call_site, wrong.culprits),
                wrong.decided,
            )
        )
    return findings


def _notes(case: _Case) -> list[_Finding]:
    """Disagreements in calls that all completed: worth knowing, and not what hangs."""
    done = [p for p in case.desync if _completed(case.history, p)]
    return [
        _Finding(
            "note",
            case.desync[call_site].culprits,
            call_site,
            case.type_at(call_site),
            f"{case.at(call_site)} differs between ranks, and all completed it: "
            f"{case.desync[call_site].words}.",
            _frames_at(case, call_site, case.desync[call_site].culprits),
            decided=False,
        )
        for call_site in sorted(done, key=lambda p: p.seq)[:_MOST_MISMATCHES]
    ]


def _polls(case: _Case) -> list[_Finding]:
    """Who went on between several dumps of one job."""
    moved = [r for r, went_on in case.history.moved.items() if went_on]
    still = [r for r, went_on in case.history.moved.items() if not went_on]
    if not moved and not still:
        return []
    words = [f"{named(moved)} went on"] if moved else []
    words += [f"{named(still)} did not move"] if still else []
    once = set(case.history.dumped) - set(case.history.moved)
    rest = f"; of {named(sorted(once))} there is one dump, or alike ones" if once else ""
    text = f"Between their first and their last dump {' and '.join(words)}{rest}."
    return [_Finding("note", tuple(still), None, None, text, decided=False)]


def _frames_at(case: _Case, call_site: Place, ranks: tuple[int, ...]) -> str | None:
    calls = case.history.at[call_site]
    return next((calls[r].frames for r in ranks if r in calls and calls[r].frames), None)


def _wrong_groups(case: _Case) -> list[_Finding]:
    """Ranks that wait, are waited for, and called another group than ranks in like places."""
    wanted = set().union(*case.waits_for.values()) if case.waits_for else set()
    findings = []
    for turn in wrong_turns(case.history):
        if not {*turn.ranks} <= wanted & set(case.waiting):
            continue
        call, expected = turn.call, turn.expected
        verb = "calls" if len(turn.ranks) == 1 else "call"
        findings.append(
            _Finding(
                "wrong_group",
                turn.ranks,
                call.place,
                call.type,
                f"{named(turn.ranks)} {verb} {case.at(call.place)} where {named(turn.others)}, in "
                f"like places, made calls like {case.at(expected.place)} (call {turn.number} of "
                f"each): {named(turn.ranks)} at fault.",
                call.frames,
            )
        )
    return findings


def _missing(case: _Case, astray: set[int]) -> list[_Finding]:
    """Ranks that others wait for and that wait nowhere themselves.

    Who is waited for only by ranks that went astray is not missing.
    """
    wanted: dict[int, list[Place]] = defaultdict(list)
    away = {
        call_site: set().union(*(case.waits_for[r] for r in ranks if r not in astray))
        for call_site, ranks in case.stuck.items()
    }
    # First the calls that nobody else keeps from: those are what they should have come to next.
    for call_site in sorted(
        away, key=lambda p: (len(away[p] & set(case.waiting)), -len(case.stuck[p]))
    ):
        for rank in sorted(away[call_site]):
            if rank in case.history.calls and rank not in case.waiting:
                wanted[rank].append(call_site)
    together: dict[tuple[Place, str, str | None], list[int]] = defaultdict(list)
    for rank, places in wanted.items():
        last = case.history.calls[rank][-1:]
        stood = f"; last call {case.at(last[0].place)}{_where(last[0].frames)}" if last else ""
        together[places[0], stood, last[0].frames if last else None].append(rank)
    return [
        _Finding(
            "missing_rank",
            tuple(ranks),
            call_site,
            case.type_at(call_site),
            f"{named(ranks)} never came to {case.at(call_site)}{stood}.",
            frames,
            excluded=tuple(ranks),
        )
        for (call_site, stood, frames), ranks in together.items()
    ]


def _where(frames: str | None) -> str:
    """The innermost frame that is not torch's own."""
    lines = frames.split("\n") if frames else []
    own = next((f for f in lines if "/torch/" not in f), lines[0] if lines else "")
    return f", from {own}" if own else ""


def _cycles(case: _Case) -> list[_Finding]:
    """Ranks that wait for each other in a circle."""
    ends = {r for others in case.waits_for.values() for r in others} - set(case.waiting)
    ends |= {r for r, others in case.waits_for.items() if not others}
    left = {r: case.waits_for[r] for r in case.waiting if r not in case.reaching(ends)}
    if not left:
        return []
    ring = cycle_among(left)
    steps = [
        f"rank {rank} waits at {case.at(case.waiting[rank].place)} for rank {after}"
        for rank, after in zip(ring, [*ring[1:], *ring[:1]], strict=True)
    ]
    first = case.waiting[ring[0]]
    return [
        _Finding(
            "cycle",
            tuple(sorted(ring)),
            first.place,
            first.type,
            f"{named(ring)} wait for each other in a circle: {'; '.join(steps)}.",
            first.frames,
        )
    ]


def _complete(case: _Case) -> list[_Finding]:
    """Calls that every member came to, alike, and that do not end. Asked if no cause is known."""
    findings = []
    for call_site, ranks in case.stuck.items():
        calls = case.history.at[call_site]
        everyone = case.history.members(call_site)
        started = [r for r in everyone if r in calls and calls[r].started]
        seen = f" ({len(started)} saw it start)" if started else ""
        has_members = (
            bool(call_site.group.ranks or call_site.pair)
            and call_site.group not in case.history.inferred
        )
        words = (
            f"All {len(everyone)} ranks of {case.at(call_site)} came to it{seen}, made the same "
            f"call, and it has not ended on {named(ranks)}: the network or a GPU, not the program."
            if has_members
            else f"{case.at(call_site)} has not ended on {named(ranks)}; all that used the group "
            "came to it, and whether it has other members is not recorded."
        )
        findings.append(
            _Finding(
                "not_completed" if has_members else "cannot_decide",
                tuple(ranks),
                call_site,
                case.type_at(call_site),
                words,
                calls[ranks[0]].frames,
                has_members,
            )
        )
    return findings


def _undecided(case: _Case) -> list[_Finding]:
    """Ranks without a dump that others wait for."""
    findings = []
    for call_site, ranks in case.stuck.items():
        lost = case.history.unknown(call_site)
        if not lost or (call_site in case.desync and case.desync[call_site].decided):
            continue
        waiting = f"{named(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"
        absent = case.history.absent(call_site)
        others = len(case.history.members(call_site)) - len(lost)
        words = (
            f"{named(lost)} left no dump: whether they came to {case.at(call_site)}, where "
            f"{waiting}, cannot be decided"
            if absent or others < 1
            else f"{named(lost)} left no dump, and {'all ' if others > 1 else 'the '}{others} "
            f"other{'s' if others > 1 else ''} came to {case.at(call_site)}, where {waiting}: "
            f"{named(lost)} or the network"
        )
        findings.append(
            _Finding(
                "cannot_decide",
                tuple(lost),
                call_site,
                case.type_at(call_site),
                f"{words}.",
                decided=False,
                excluded=() if absent or others <= len(lost) else tuple(lost),
            )
        )
    return findings


_GLOO = "gloo"


def _nothing_pending(case: _Case) -> _Finding:
    dumped = case.history.dumped
    lost = f"; {named(case.undumped)} left no dump" if case.undumped else ""
    unseen = "; gloo's recorder leaves out send and recv" if _GLOO in case.history.libraries else ""
    words = f"No collective was left unfinished on {named(dumped)}{lost}{unseen}."
    return _Finding("nothing_pending", tuple(dumped), None, None, words, decided=False)


def _waiting(case: _Case) -> list[_Finding]:
    """Who only waits, by the call they wait at."""
    findings = []
    for call_site, ranks in case.stuck.items():
        others = sorted(set().union(*(case.waits_for[r] for r in ranks)))
        away = f" for {named(others)}" if others else ""
        words = (
            f"{named(ranks)} {'waits' if len(ranks) == 1 else 'wait'} at {case.at(call_site)}{away}"
            f"{_aborted(case, call_site)}."
        )
        frames = _frames_at(case, call_site, tuple(ranks))
        findings.append(
            _Finding("waiting", tuple(ranks), call_site, case.type_at(call_site), words, frames)
        )
    return findings


def _aborted(case: _Case, call_site: Place) -> str:
    """That the watchdog ended a call, in words."""
    calls = case.history.at[call_site].values()
    ages = [c.aborted_after_ns for c in calls if c.aborted_after_ns is not None]
    return f"; ended by its timeout after {max(ages) / 1e9:.0f} s" if ages else ""
