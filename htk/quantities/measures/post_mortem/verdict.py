"""One verdict from all sources: causes of the strongest first, the evidence of each under it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import mark_valid, match_texts, read_numbers
from htk.base.core.humanize import cut_message, pluralize_count
from htk.quantities.measures.call_history import Histories
from htk.quantities.measures.desync import name_ranks
from htk.quantities.measures.flight import collect_histories
from htk.quantities.measures.post_mortem import bystanders, causes
from htk.quantities.measures.post_mortem.case import Case
from htk.quantities.measures.post_mortem.counted import JobState, find_behind_by_counts
from htk.quantities.measures.post_mortem.counts import (
    NCCL_LOG,
    RAS,
    Counts,
    collect_ras_counts,
    count_logged_calls,
    dead_processes,
)
from htk.quantities.measures.post_mortem.errors import Complaint, list_complaints
from htk.quantities.measures.post_mortem.finding import Finding
from htk.quantities.measures.post_mortem.logged_calls import differing_calls
from htk.quantities.measures.post_mortem.processes import Processes
from htk.quantities.measures.post_mortem.stacks import outside_of_collectives, stacks_of
from htk.quantities.measures.post_mortem.workers import states_of_workers

_MOST_TOLD = 4


_EQUAL = "equally many collectives"  # as a note of RAS says it
_ENDED = "ENDED"  # level of a note: a benchmark came to its end


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
        names |= {n["source"] for n in self.comm_notes.to_pylist() if n["level"] != _ENDED}
        names |= {NCCL_LOG} if self.processes.ended else set()
        names |= set(self.python_stacks["source"].to_pylist())
        return sorted(names | ({RAS} if self.dead else set()))


def gather_evidence(
    collectives: pa.Table,
    comm_groups: pa.Table,
    comm_inits: pa.Table,
    comm_counts: pa.Table,
    comm_notes: pa.Table,
    python_stacks: pa.Table,
) -> Evidence:
    """Collect what each source tells."""
    processes = Processes(comm_inits)
    of_library = mark_valid(comm_groups["comm_hash"]) | match_texts(
        comm_groups["source"], RAS.__eq__
    )
    sizes = read_numbers(comm_groups["group_size"], 0)[of_library]
    world_size = int(np.max(sizes)) if len(sizes) else None
    dead = [
        f"process {row['process']} on {row['host']} ({row['status']})"
        for row in dead_processes(comm_counts)
    ]
    return Evidence(
        collect_histories(collectives, comm_groups, world_size),
        processes,
        count_logged_calls(collectives, processes),
        collect_ras_counts(comm_counts),
        list(dict.fromkeys(dead)),
        list_complaints(comm_notes, python_stacks, processes),
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


def judge_evidence(evidence: Evidence) -> PostMortem:
    """Return the verdict: what recorders tell, else what counts tell, else what errors tell."""
    case = Case(evidence.history)
    recorded = _list_recorded(case)
    stopped = bool(evidence.history.calls or evidence.complaints)
    job = JobState(evidence.processes, evidence.dead, stopped)
    behind = [*find_behind_by_counts(evidence.log, job), *find_behind_by_counts(evidence.ras, job)]
    differing = differing_calls(evidence.collectives, evidence.log)
    errors = _list_errors(evidence.complaints)
    chosen = _choose_findings(evidence, recorded, behind, differing, errors)
    end = _end_of_job(evidence)
    if end is not None and not any(f.decided for f in chosen) and not evidence.history.calls:
        chosen = [end]
    others = [f for f in (*behind, *differing, *errors) if f not in chosen and f.what != "note"]
    chosen = [_with_errors(f, evidence.complaints) for f in chosen]
    chosen = [
        _beside_even_counts(f, evidence) for f in chosen or [_explain_nothing(case, evidence)]
    ]
    is_decided = any(f.decided for f in chosen)
    is_over = not evidence.history.calls and chosen[0].what == "nothing_pending"
    rest = [
        *(
            _describe_finding(f, case)
            for f in (*bystanders.find_waiting_ranks(case), *bystanders.find_other_unfinished(case))
        ),
        *(replace(f, what="evidence", decided=False, excluded=()) for f in others),
        *([] if is_decided else _find_alike(evidence)),
        *stacks_of(evidence.python_stacks, chosen),
        *states_of_workers(evidence.comm_notes),
        *(
            _describe_finding(f, case)
            for f in (
                *bystanders.find_progress_between_dumps(case),
                *bystanders.list_settled_mismatches(case),
            )
        ),
        *([] if is_decided or is_over else _would_decide(case, evidence, chosen)),
    ]
    return PostMortem(chosen, rest, case.undumped)


def _choose_findings(
    evidence: Evidence,
    recorded: list[Finding],
    behind: list[Finding],
    differing: list[Finding],
    errors: list[Finding],
) -> list[Finding]:
    """Return the findings that make the verdict: decided ones of the strongest source that has any.

    What recorders leave open beside a decided cause stays with it.
    """
    if any(f.decided for f in recorded):
        return sorted(recorded, key=lambda f: not f.decided)
    decided = _find_agreed(recorded, behind, evidence) or [
        *differing,
        *(f for f in behind if f.decided),
    ]
    decided = decided or [f for f in errors if f.decided]
    return decided or [*recorded, *behind] or errors


def _list_recorded(case: Case) -> list[Finding]:
    """Return what recorders and watchdogs show, causes first."""
    cycles = causes.find_wait_cycles(case)
    turns = [] if cycles else causes.wrong_groups(case)
    astray = {rank for turn in turns for rank in turn.ranks}
    findings = [
        *causes.find_mismatches(case),
        *turns,
        *causes.find_missing_ranks(case, astray),
        *cycles,
    ]
    findings += bystanders.find_dumpless_ranks(case)
    findings = findings or bystanders.find_stuck_complete(case)
    findings += bystanders.lone_messages(case)
    return [_describe_finding(f, case) for f in findings]


def _describe_finding(finding: Finding, case: Case) -> Finding:
    group = finding.group
    description = (case.history.descriptions.get(group) or None) if group else None
    source = finding.source or case.source_of(finding.ranks)
    is_unnamed = group is not None and not group.name and group in case.history.inferred
    is_open = group in case.history.open_ended or is_unnamed
    return replace(finding, source=source, group_desc=description, has_open_group=is_open)


def _list_errors(every: list[Complaint]) -> list[Finding]:
    """Errors of each kind as one finding, with the text of the first."""
    by_kind: dict[str, list[Complaint]] = defaultdict(list)
    for complaint in every:
        by_kind[complaint.meaning.kind].append(complaint)
    findings = []
    for kind, some in by_kind.items():
        first = min(some, key=lambda c: c.time_ns if c.time_ns is not None else 1 << 62)
        ranks = tuple(sorted({c.rank for c in some if c.rank is not None}))
        others = f" (and {len(some) - 1} more like it)" if len(some) > 1 else ""
        text = cut_message(first.text).rstrip(".")
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


def _find_agreed(
    undecided: list[Finding], behind: list[Finding], evidence: Evidence
) -> list[Finding]:
    """Findings on ranks that left nothing behind, which another source tells of."""
    agreed = []
    for open_one in undecided:
        lost = set(open_one.ranks) if open_one.excluded or evidence.history.calls else set()
        lost -= set(evidence.history.calls)
        for other in behind:
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
                        source=_join_names(open_one.source, other.source),
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
                        source=_join_names(open_one.source, complaint.source),
                    )
                )
    return agreed[:1]


def _without_alternative(finding: Finding) -> str:
    """Return what was found, less what else it might be: another source has told."""
    observed, _, alternatives = finding.words.rpartition(": ")
    return f"{observed}." if alternatives.endswith("or the network.") else finding.words


def _join_names(first: str | None, second: str | None) -> str | None:
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
    text = cut_message(first.text).rstrip(".")
    words = f"{_without_alternative(finding)} {first.who}: {first.meaning.words}: {text}."
    # What is no fault of the hardware would come again on another host.
    explained = {c.rank for c in ours if not c.meaning.is_hardware}
    excluded = tuple(rank for rank in finding.excluded if rank not in explained)
    source = _join_names(finding.source, first.source)
    return replace(finding, words=words, source=source, excluded=excluded)


def _beside_even_counts(finding: Finding, evidence: Evidence) -> Finding:
    """Add to an open case that RAS saw all ranks of its group equally far, if it did."""
    ras = evidence.ras
    size = len(finding.group.ranks) if finding.group else 0
    even = any(not ras.behind(c) and ras.sizes.get(c) == size for c in ras.members)
    even |= any(
        note["source"] == RAS and f"of {size:,} ranks" in note["text"] and _EQUAL in note["text"]
        for note in evidence.comm_notes.to_pylist()
    )
    if finding.what != "cannot_decide" or not size or not even:
        return finding
    words = (
        f"{finding.words} NCCL's RAS saw all {size:,} ranks equally far: rather the network or a "
        "GPU than a rank that never came."
    )
    source = _join_names(finding.source, RAS)
    return replace(finding, words=words, source=source, excluded=())


def _end_of_job(evidence: Evidence) -> Finding | None:
    """Return that the job came to its end, where its log says so."""
    ends = evidence.processes.ended
    if _ENDED in evidence.comm_notes["level"].to_pylist():
        words = "The benchmark printed its summary: it ended, and nothing here tells of a hang."
    elif ends and all(evidence.processes.have_ended(comm) for comm, _ in ends):
        aborted = "abort" in ends.values()
        words = (
            "All communicators that NCCL's log tells of were aborted: the job was ended by an "
            "error or a timeout, which other lines of its logs would name."
            if aborted
            else "All communicators that NCCL's log tells of were torn down in good order: the job "
            "ended, and nothing here tells of a hang."
        )
    else:
        return None
    return Finding("nothing_pending", (), None, None, words, decided=False, source=NCCL_LOG)


def _explain_nothing(case: Case, evidence: Evidence) -> Finding:
    if evidence.history.calls:
        return bystanders.nothing_pending(case)
    steps = max(map(evidence.ras.moved_by, evidence.ras.members), default=0)
    if steps:
        words = (
            f"All ranks went on by {pluralize_count(steps, 'call')} or more between the reports of "
        )
        words += "NCCL's RAS: it does not hang."
        return Finding("nothing_pending", (), None, None, words, decided=False, source=RAS)
    if evidence.log.members or evidence.ras.members:
        words = (
            "All ranks that are told of have enqueued equally many collectives: the last of them "
            "does not end (network, GPU), or all ranks stand elsewhere in the program."
        )
    else:
        words = "Nothing here tells which collective hangs."
        apart = outside_of_collectives(evidence.python_stacks)
        if apart is not None:
            return apart
    return Finding("cannot_decide", (), None, None, words, decided=False)


def _find_alike(evidence: Evidence) -> list[Finding]:
    """Communicators in which nobody is behind."""
    findings = [
        Finding("evidence", (), None, None, note["text"], decided=False, source=RAS)
        for note in evidence.comm_notes.to_pylist()
        if note["source"] == RAS
    ]
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
    """Return what to gather next, most telling first."""
    sources = set(evidence.sources)
    wanted = []
    if case.undumped:
        wanted.append(f"the flight recorder dumps and logs of {name_ranks(case.undumped)}")
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
        wanted.append(
            f"`py-spy dump` of {name_ranks(ranks) if 0 < len(ranks) < 9 else 'every rank'}"
        )
    words = f"What would decide it: {'; '.join(wanted)}."
    return [Finding("to_decide", tuple(case.undumped), None, None, words, decided=False)]
