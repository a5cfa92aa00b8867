"""Findings on who is behind, silent or unlike the others, as NCCL's log and RAS count."""

from collections import defaultdict
from dataclasses import dataclass

from htk.base.core.humanize import pluralize_count
from htk.quantities.measures.desync import name_ranks
from htk.quantities.measures.post_mortem.counts import RAS, CommMember, Counts
from htk.quantities.measures.post_mortem.finding import Finding
from htk.quantities.measures.post_mortem.processes import Processes

_MOST_NAMED = 4
_MOVED = "nothing_pending"


@dataclass(frozen=True)
class JobState:
    """What other sources know of the job."""

    processes: Processes
    dead: list[str]  # processes that do not answer RAS, in words
    stopped: bool  # something else shows that it does not go on


def find_behind_by_counts(counts: Counts, job: JobState) -> list[Finding]:
    """Return who is behind or does not answer, as NCCL's log and RAS count."""
    findings = _find_silent(counts, job)
    silent = {rank for f in findings for rank in f.ranks}
    by_comm: dict[str, list[CommMember]] = defaultdict(list)
    for member in counts.roots():
        if member.rank not in silent:
            by_comm[member.comm].append(member)
    stopped = job.stopped
    for comm, members in by_comm.items():
        apart = _moving_or_few_ahead(counts, comm, members)
        if apart is not None:
            findings.append(apart)
            continue
        least = min(m.total for m in members)
        most = counts.most(comm)
        who = _name_members(counts, comm, members)
        still = all(m.polled > 1 and not m.moved for m in members)
        sure = still or (stopped and counts.source != RAS)
        kinds = {kind for m in members for kind in m.counts}
        calls = f"{next(iter(kinds))} calls" if len(kinds) == 1 else "collectives"
        words = (
            f"{who} enqueued {least:,} {calls} and others up to {most:,}: it never came to "
            f"number {least + 1:,}"
        )
        words += " and did not move between reports." if still else "."
        if not sure:
            words += " It may only be slower: a second look a minute later tells."
        findings.append(_of_members(counts, job, "missing_rank", members, words, sure))
    if not findings and any(counts.behind(comm) for comm in counts.members):
        words = "Every rank that is behind in one communicator is ahead in another: they may wait "
        findings.append(
            Finding(
                "cannot_decide",
                (),
                None,
                None,
                words + "for each other in a circle.",
                decided=False,
                source=counts.source,
            )
        )
    # NCCL's log lists the calls themselves: `differing_calls` compares those.
    return findings + (_find_unlike(counts, job) if counts.source == RAS else [])


def _moving_or_few_ahead(counts: Counts, comm: str, behind: list[CommMember]) -> Finding | None:
    """Return a finding where nobody is missing: all go on, or most are behind a few.

    A few that are ahead may have made a call too many as well as the others one too few.
    """
    everyone = [m for m in counts.members[comm].values() if m.counts]
    least = min(m.total for m in behind)
    most = counts.most(comm)
    ahead = [m for m in everyone if m.total > least]
    size = f" of communicator {comm}"
    if steps := counts.moved_by(comm):
        are = "is" if len(ahead) == 1 else "are"
        words = (
            f"All ranks{size} went on by {pluralize_count(steps, 'call')} or more between the "
            "reports: "
            f"it does not hang; {name_ranks([m.rank for m in ahead])} {are} {most - least:,} ahead."
        )
        return Finding(_MOVED, (), None, None, words, decided=False, source=counts.source)
    if 2 * len(behind) <= len(everyone):
        return None
    leaders = name_ranks([m.rank for m in ahead])
    lead = pluralize_count(most - least, "collective")
    words = (
        f"{leaders}{size} enqueued {lead} more than the other {len(behind)} ranks, which came to "
        f"{least:,}: {'it' if len(ahead) == 1 else 'they'} made a call too many, or the others "
        "have not come to it."
    )
    still = all(m.polled > 1 and not m.moved for m in everyone)
    words += " Nobody moved between the reports." if still else ""
    ranks = tuple(m.rank for m in ahead)
    return Finding("cannot_decide", ranks, None, None, words, decided=False, source=counts.source)


def _find_silent(counts: Counts, job: JobState) -> list[Finding]:
    findings = []
    for comm, members in counts.members.items():
        lost = [
            m for m in members.values() if {"unresponsive", "considered_dead"} & _split_status(m)
        ]
        ill = [m for m in members.values() if m.status and m not in lost]
        if lost:
            who = _name_members(counts, comm, lost)
            words = f"{who} does not answer RAS: its process or node is gone."
            findings.append(_of_members(counts, job, "missing_rank", lost, words, True))
        if ill:
            status = ", ".join(sorted({s for m in ill for s in m.status}))
            words = f"{_name_members(counts, comm, ill)} reports {status}."
            findings.append(_of_members(counts, job, "rank_error", ill, words, False))
    if not findings and counts.source == RAS and job.dead:
        words = f"RAS gets no answer from {', '.join(job.dead[:_MOST_NAMED])}."
        findings.append(Finding("missing_rank", (), None, None, words, source=RAS))
    return findings


def _split_status(member: CommMember) -> set[str]:
    return {word.strip() for status in member.status for word in status.split(",")}


def _find_unlike(counts: Counts, job: JobState) -> list[Finding]:
    findings = []
    for comm in counts.members:
        unlike = counts.unlike(comm)
        ranks = sorted({rank for some in unlike.values() for rank in some})
        if ranks:
            members = [counts.members[comm][rank] for rank in ranks]
            words = (
                f"{_name_members(counts, comm, members)} enqueued as many collectives as the "
                f"others, but not the same: counts of {', '.join(unlike)} differ."
            )
            sure = 2 * len(ranks) < len(counts.members[comm])
            findings.append(_of_members(counts, job, "type_mismatch", members, words, sure))
    return findings


def _name_members(counts: Counts, comm: str, members: list[CommMember]) -> str:
    size = counts.sizes.get(comm)
    width = f" ({size} ranks)" if size else ""
    return f"{name_ranks([m.rank for m in members])} of communicator {comm}{width}"


def _of_members(
    counts: Counts, job: JobState, what: str, members: list[CommMember], words: str, sure: bool
) -> Finding:
    """A finding on members of a communicator, by their ranks in the job where those are known."""
    rank_of = job.processes.ranks
    global_ranks = [rank_of.get(m.process) if m.process else None for m in members]
    widest = counts.sizes.get(members[0].comm) == max(counts.sizes.values(), default=0)
    ranks = [k for k in global_ranks if k is not None]
    if len(ranks) < len(members):
        ranks = [m.rank for m in members] if widest else []
    excluded = tuple(ranks) if what == "missing_rank" and sure else ()
    return Finding(what, tuple(ranks), None, None, words, None, sure, excluded, counts.source)
