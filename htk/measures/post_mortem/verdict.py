"""One verdict from all sources: causes of the strongest first, the evidence of each under it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from htk.columns.arrow import numbers, valid
from htk.measures.desync import named
from htk.measures.flight import Histories, histories
from htk.measures.post_mortem import bystanders, causes
from htk.measures.post_mortem.case import Case
from htk.measures.post_mortem.counts import (
    RAS,
    CommMember,
    Counts,
    dead_processes,
    logged,
    reported,
)
from htk.measures.post_mortem.errors import Complaint, complaints
from htk.measures.post_mortem.finding import Finding
from htk.measures.post_mortem.logged_calls import differing_calls
from htk.measures.post_mortem.processes import Processes
from htk.measures.post_mortem.stacks import stacks_of

_MOST_TOLD = 4


@dataclass
class Evidence:
    """Everything that was left behind, as far as it was findings."""

    history: Histories
    processes: Processes
    log: Counts
    ras: Counts
    dead: list[str]
    complaints: list[Complaint]
    collectives: pa.Table
    comm_notes: pa.Table
    python_stacks: pa.Table

    @property
    def sources(self) -> list[str]:
        names = {*self.history.sources.values()}
        names |= {c.source for c in (self.log, self.ras) if c.members}
        names |= {c.source for c in self.complaints}
        names |= set(self.comm_notes["source"].to_pylist())
        names |= set(self.python_stacks["source"].to_pylist())
        return sorted(names | ({RAS} if self.dead else set()))


def gather(
    collectives: pa.Table,
    comm_groups: pa.Table,
    comm_inits: pa.Table,
    comm_counts: pa.Table,
    comm_notes: pa.Table,
    python_stacks: pa.Table,
) -> Evidence:
    """Collect what each source tells."""
    processes = Processes(comm_inits)
    sizes = numbers(comm_groups["group_size"])[valid(comm_groups["comm_hash"])]
    world_size = int(np.max(sizes)) if len(sizes) else None
    dead = [
        f"process {row['process']} on {row['host']} ({row['status']})"
        for row in dead_processes(comm_counts)
    ]
    return Evidence(
        histories(collectives, comm_groups, world_size),
        processes,
        logged(collectives, processes),
        reported(comm_counts),
        list(dict.fromkeys(dead)),
        complaints(comm_notes, python_stacks, processes),
        collectives,
        comm_notes,
        python_stacks,
    )


@dataclass
class PostMortem:
    """Causes first, then who waits, evidence, notes, and what would decide what is open."""

    causes: list[Finding]
    others: list[Finding]
    undumped: list[int]

    @property
    def decided(self) -> bool:
        return any(f.decided for f in self.causes)

    @property
    def excluded(self) -> list[int]:
        return sorted({rank for f in self.causes for rank in f.excluded})

    @property
    def words(self) -> str:
        return " ".join(f.words for f in self.causes[:_MOST_TOLD])

    @property
    def findings(self) -> list[Finding]:
        return [*self.causes, *self.others]


def judge(evidence: Evidence) -> PostMortem:
    """Return the verdict: what recorders tell, else what counts tell, else what errors tell."""
    case = Case(evidence.history)
    findings = _recorded(case)
    counted = [*_counted(evidence.log, evidence), *_counted(evidence.ras, evidence)]
    differing = differing_calls(evidence.collectives, evidence.log)
    errors = _errors(evidence.complaints)
    decided = [f for f in findings if f.decided]
    undecided = [f for f in findings if not f.decided]
    if not decided:
        agreed = _agreed(undecided, counted, evidence)
        decided = agreed or [*differing, *(f for f in counted if f.decided)]
    chosen = decided or [f for f in errors if f.decided]
    chosen = chosen or [*undecided, *(f for f in counted if not f.decided)] or errors
    chosen = [_with_errors(f, evidence.complaints) for f in chosen]
    if decided and findings and findings[0].decided:
        chosen += undecided
    others = [f for f in (*counted, *differing, *errors) if f not in chosen and f.what != "note"]
    lines = [replace(f, what="evidence", decided=False, excluded=()) for f in others]
    more = [_described(f, case) for f in (*bystanders.waiting(case), *bystanders.behind(case))]
    silent = not chosen and not evidence.history.calls
    if not chosen:
        chosen = [_nothing(case, evidence)]
    lines += _alike(evidence) if silent or not any(f.decided for f in chosen) else []
    lines += stacks_of(evidence.python_stacks, chosen)
    tail = [_described(f, case) for f in (*bystanders.polls(case), *bystanders.notes(case))]
    closing = [] if any(f.decided for f in chosen) else _would_decide(case, evidence, chosen)
    return PostMortem(chosen, [*more, *lines, *tail, *closing], case.undumped)


def _recorded(case: Case) -> list[Finding]:
    """What recorders and watchdogs show, causes first."""
    cycles = causes.cycles(case)
    turns = [] if cycles else causes.wrong_groups(case)
    astray = {rank for turn in turns for rank in turn.ranks}
    findings = [*causes.mismatches(case), *turns, *causes.missing(case, astray), *cycles]
    findings += bystanders.undecided(case)
    findings = findings or bystanders.complete(case)
    findings += bystanders.lone_messages(case)
    return [_described(f, case) for f in findings]


def _described(finding: Finding, case: Case) -> Finding:
    group = finding.group
    description = (case.history.descriptions.get(group) or None) if group else None
    source = finding.source or case.source_of(finding.ranks)
    return replace(finding, source=source, group_desc=description)


def _counted(counts: Counts, evidence: Evidence) -> list[Finding]:
    """Who is behind or does not answer, as NCCL's log and RAS count."""
    findings = _silent(counts, evidence)
    silent = {rank for f in findings for rank in f.ranks}
    by_comm: dict[str, list[CommMember]] = defaultdict(list)
    for member in counts.roots():
        if member.rank not in silent:
            by_comm[member.comm].append(member)
    stopped = bool(evidence.history.calls or evidence.complaints)
    for comm, members in by_comm.items():
        least, most = min(m.total for m in members), counts.most(comm)
        who = _named(counts, comm, members)
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
        findings.append(_of_members(counts, evidence, "missing_rank", members, words, sure))
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
    return findings + (_unlike(counts, evidence) if counts.source == RAS else [])


def _silent(counts: Counts, evidence: Evidence) -> list[Finding]:
    findings = []
    for comm, members in counts.members.items():
        lost = [m for m in members.values() if {"unresponsive", "considered_dead"} & _words(m)]
        ill = [m for m in members.values() if m.status and m not in lost]
        if lost:
            words = (
                f"{_named(counts, comm, lost)} does not answer RAS: its process or node is gone."
            )
            findings.append(_of_members(counts, evidence, "missing_rank", lost, words, True))
        if ill:
            status = ", ".join(sorted({s for m in ill for s in m.status}))
            words = f"{_named(counts, comm, ill)} reports {status}."
            findings.append(_of_members(counts, evidence, "rank_error", ill, words, False))
    if not findings and counts.source == RAS and evidence.dead:
        words = f"RAS gets no answer from {', '.join(evidence.dead[:_MOST_TOLD])}."
        findings.append(Finding("missing_rank", (), None, None, words, source=RAS))
    return findings


def _words(member: CommMember) -> set[str]:
    return {word.strip() for status in member.status for word in status.split(",")}


def _unlike(counts: Counts, evidence: Evidence) -> list[Finding]:
    findings = []
    for comm in counts.members:
        unlike = counts.unlike(comm)
        ranks = sorted({rank for some in unlike.values() for rank in some})
        if ranks:
            members = [counts.members[comm][rank] for rank in ranks]
            words = (
                f"{_named(counts, comm, members)} enqueued as many collectives as the others, but "
                f"not the same: counts of {', '.join(unlike)} differ."
            )
            sure = 2 * len(ranks) < len(counts.members[comm])
            findings.append(_of_members(counts, evidence, "type_mismatch", members, words, sure))
    return findings


def _named(counts: Counts, comm: str, members: list[CommMember]) -> str:
    size = counts.sizes.get(comm)
    width = f" ({size} ranks)" if size else ""
    return f"{named([m.rank for m in members])} of communicator {comm}{width}"


def _of_members(
    counts: Counts, evidence: Evidence, what: str, members: list[CommMember], words: str, sure: bool
) -> Finding:
    """A finding on members of a communicator, by their ranks in the job where those are known."""
    rank_of = evidence.processes.ranks
    global_ranks = [rank_of.get(m.process) if m.process else None for m in members]
    widest = counts.sizes.get(members[0].comm) == max(counts.sizes.values(), default=0)
    ranks = [k for k in global_ranks if k is not None]
    if len(ranks) < len(members):
        ranks = [m.rank for m in members] if widest else []
    excluded = tuple(ranks) if what == "missing_rank" and sure else ()
    return Finding(what, tuple(ranks), None, None, words, None, sure, excluded, counts.source)


def _errors(every: list[Complaint]) -> list[Finding]:
    """Errors of each kind as one finding, with the text of the first."""
    by_kind: dict[str, list[Complaint]] = defaultdict(list)
    for complaint in every:
        by_kind[complaint.meaning.kind].append(complaint)
    findings = []
    for kind, some in by_kind.items():
        first = min(some, key=lambda c: c.time_ns if c.time_ns is not None else 1 << 62)
        ranks = tuple(sorted({c.rank for c in some if c.rank is not None}))
        others = f" (and {len(some) - 1} more like it)" if len(some) > 1 else ""
        text = first.text[:200].rstrip(".")
        words = f"{first.who}: {first.meaning.words}: {text}{others}."
        sure = first.meaning.is_cause
        broken = {c.rank for c in some if c.meaning.is_hardware and c.rank is not None}
        findings.append(
            Finding(
                kind,
                ranks,
                None,
                None,
                words,
                first.frames,
                sure,
                tuple(sorted(broken)),
                first.source,
            )
        )
    return findings


def _agreed(undecided: list[Finding], counted: list[Finding], evidence: Evidence) -> list[Finding]:
    """Findings on ranks that left nothing behind, which another source tells of."""
    agreed = []
    for open_one in undecided:
        lost = set(open_one.ranks) if open_one.excluded or evidence.history.calls else set()
        lost -= set(evidence.history.calls)
        for other in counted:
            if other.what == "missing_rank" and other.ranks and {*other.ranks} <= lost:
                words = f"{_without_alternative(open_one)} {other.words}"
                agreed.append(
                    replace(
                        open_one,
                        what="missing_rank",
                        ranks=other.ranks,
                        words=words,
                        decided=True,
                        excluded=other.ranks,
                        source=_together(open_one.source, other.source),
                    )
                )
        for complaint in evidence.complaints:
            if complaint.rank in lost and complaint.meaning.is_cause:
                ranks = (complaint.rank,)
                agreed.append(
                    replace(
                        open_one,
                        what="missing_rank",
                        ranks=ranks,
                        decided=True,
                        excluded=ranks,
                        frames=complaint.frames or open_one.frames,
                        source=_together(open_one.source, complaint.source),
                    )
                )
    return agreed[:1]


def _without_alternative(finding: Finding) -> str:
    """What was found, less what else it might be: another source has told."""
    observed, _, alternatives = finding.words.rpartition(": ")
    return f"{observed}." if alternatives.endswith("or the network.") else finding.words


def _together(first: str | None, second: str | None) -> str | None:
    names = {*(first or "").split(", "), *(second or "").split(", ")} - {""}
    return ", ".join(sorted(names)) or None


_HARDWARE = ("network_error", "gpu_error")


def _with_errors(finding: Finding, findings: list[Complaint]) -> Finding:
    """Add what ranks said of themselves; of a call that does not end, what hardware reports."""
    if finding.what not in ("missing_rank", "not_completed"):
        return finding
    ours = [
        c
        for c in findings
        if c.meaning.is_cause
        and (
            c.meaning.kind in _HARDWARE
            if finding.what == "not_completed"
            else c.rank in finding.ranks
        )
    ]
    if not ours:
        return finding
    first = ours[0]
    text = first.text[:200].rstrip(".")
    words = f"{_without_alternative(finding)} {first.who}: {first.meaning.words}: {text}."
    # What is no fault of the hardware would come again on another host.
    explained = {c.rank for c in ours if not c.meaning.is_hardware}
    excluded = tuple(rank for rank in finding.excluded if rank not in explained)
    source = _together(finding.source, first.source)
    return replace(finding, words=words, source=source, excluded=excluded)


def _nothing(case: Case, evidence: Evidence) -> Finding:
    if evidence.history.calls:
        return bystanders.nothing_pending(case)
    if evidence.log.members or evidence.ras.members:
        words = (
            "All ranks that are told of have enqueued equally many collectives: the last of them "
            "does not end (network, GPU), or all ranks stand elsewhere in the program."
        )
    else:
        words = "Nothing here tells which collective hangs."
    return Finding("cannot_decide", (), None, None, words, decided=False)


def _alike(evidence: Evidence) -> list[Finding]:
    """Communicators in which nobody is behind."""
    findings = []
    for counts in (evidence.log, evidence.ras):
        even = [comm for comm in counts.members if not counts.behind(comm)]
        if even:
            most = max(even, key=counts.most)
            words = (
                f"In {len(even)} of {len(counts.members)} communicators all ranks told of have "
                f"enqueued equally many collectives, at most {counts.most(most):,}."
            )
            findings.append(
                Finding("evidence", (), None, None, words, decided=False, source=counts.source)
            )
    return findings


def _would_decide(case: Case, evidence: Evidence, chosen: Iterable[Finding]) -> list[Finding]:
    """What to gather next, most telling first."""
    sources = set(evidence.sources)
    wanted = []
    if case.undumped:
        wanted.append(f"the flight recorder dumps and logs of {named(case.undumped)}")
    elif "flight_recorder" not in sources:
        wanted.append(
            "flight recorder dumps of all ranks (TORCH_FR_BUFFER_SIZE=2000 "
            "TORCH_NCCL_DUMP_ON_TIMEOUT=1)"
        )
    if RAS not in sources:
        wanted.append("`ncclras -f json` twice, a minute apart, while it hangs")
    elif evidence.ras.members and not any(m.polled > 1 for m in evidence.ras.all_members):
        wanted.append("a second `ncclras` report, a minute after the first")
    if "python_stacks" not in sources:
        ranks = sorted({r for f in chosen for r in f.ranks})
        wanted.append(f"`py-spy dump` of {named(ranks) if 0 < len(ranks) < 9 else 'every rank'}")
    words = f"What would decide it: {'; '.join(wanted)}."
    return [Finding("to_decide", tuple(case.undumped), None, None, words, decided=False)]
