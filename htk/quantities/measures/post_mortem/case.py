"""Which ranks wait, where and for whom, by recorders and watchdogs; where calls first differ."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from htk.quantities.measures.call_history import (
    RECORDER,
    CallSite,
    GroupId,
    Histories,
    RecordedCall,
)
from htk.quantities.measures.desync import Mismatch, find_mismatch, name_ranks


@dataclass
class Case:
    """Who waits where, and for whom."""

    history: Histories
    waiting: dict[int, RecordedCall] = field(default_factory=dict)
    waits_for: dict[int, set[int]] = field(default_factory=dict)
    desync: dict[CallSite, Mismatch] = field(default_factory=dict)
    undumped: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        history = self.history
        for rank in history.dumped:
            call = history.waits_at(rank)
            if call is not None:
                self.waiting[rank] = call
                self.waits_for[rank] = history.waits_for(rank)
        self.desync = first_mismatches(history)
        members = {r for p in history.by_site for r in history.members(p)}
        members |= {r for _, group in history.status for r in group.ranks}
        self.undumped = sorted(members - set(history.dumped))

    @property
    def stuck(self) -> dict[CallSite, list[int]]:
        """Ranks by the call that they wait at."""
        by_call: dict[CallSite, list[int]] = defaultdict(list)
        for rank, call in self.waiting.items():
            by_call[call.call_site].append(rank)
        return dict(by_call)

    def reaching(self, roots: Iterable[int]) -> set[int]:
        """Return the ranks that wait for one of these, over however many others."""
        before = defaultdict(set)
        for rank, others in self.waits_for.items():
            for other in others:
                before[other].add(rank)
        seen = set(roots)
        todo = list(roots)
        while todo:
            for rank in before[todo.pop()] - seen:
                seen.add(rank)
                todo.append(rank)
        return seen

    def type_of(self, site: CallSite) -> str:
        return next((c.type for _, c in sorted(self.history.by_site.get(site, {}).items())), "call")

    def name_unheard(self, site: CallSite, ranks: list[int]) -> str:
        """Return ranks that left nothing behind in words, with those that may lie above them."""
        if site.group not in self.history.open_ended:
            return name_ranks(ranks)
        return f"{name_ranks(ranks)} and any above {max(site.group.ranks)}"

    def describe(self, site: CallSite) -> str:
        """Return a call in words."""
        group = self.group(site.group)
        if site.pair:
            sender, receiver = site.pair
            return f"message {site.seq} from rank {sender} to {receiver} in {group}"
        return f"{self.type_of(site)} number {site.seq} of {group}"

    def group(self, group: GroupId) -> str:
        description = self.history.descriptions.get(group)
        described = description and description != "undefined"
        name = f"group {group.name}" if group.name else "a group whose name is not told"
        return f"{name} ({description})" if described else name

    @property
    def silent(self) -> str:
        """Return in words what the ranks that left nothing behind did."""
        watched = set(self.history.sources.values()) - {RECORDER}
        return "left neither a dump nor a line of the watchdog" if watched else "left no dump"

    def source_of(self, ranks: Iterable[int]) -> str | None:
        """Return who tells of ranks."""
        names = {s for r, s in self.history.sources.items() if r in set(ranks)}
        return ", ".join(sorted(names or set(self.history.sources.values()))) or None


def first_mismatches(history: Histories) -> dict[CallSite, Mismatch]:
    """Return the first disagreement of each group and pair of ranks, completed and not."""
    by_call: dict[CallSite, Mismatch] = {}
    done: set[tuple[Any, ...]] = set()
    for site in sorted(history.by_site, key=lambda p: (p.seq, p.group.name, p.group.ranks)):
        lane = (site.group, site.pair, is_completed(history, site))
        if lane in done or len(history.by_site[site]) < 2:
            continue
        difference = find_mismatch(history, site)
        if difference is not None:
            done.add(lane)
            by_call[site] = difference
    return by_call


def is_completed(history: Histories, site: CallSite) -> bool:
    """Return whether everybody who made a call has completed it: then it is not what hangs."""
    return all(call.completed for call in history.by_site[site].values())


def frames_at(case: Case, site: CallSite, ranks: tuple[int, ...]) -> str | None:
    calls = case.history.by_site[site]
    return next((calls[r].frames for r in ranks if r in calls and calls[r].frames), None)
