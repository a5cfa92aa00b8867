"""What keeps a job from going on, as recorders and watchdogs tell: who differs or is missing.

Every finding is about the calls of `Case`; who only waits is told by `bystanders`.
"""

from collections import defaultdict

from htk.quantities.measures.call_history import CallSite, cycle_among
from htk.quantities.measures.call_patterns import wrong_turns
from htk.quantities.measures.desync import name_ranks
from htk.quantities.measures.post_mortem.case import Case, frames_at, is_completed
from htk.quantities.measures.post_mortem.finding import Finding
from htk.quantities.measures.post_mortem.next_call import in_order_of_program

MOST_MISMATCHES = 10  # of completed calls: after the first of a group the pairing is unsure


def find_mismatches(case: Case) -> list[Finding]:
    """Disagreements in calls that have not ended, those that ranks wait at first."""
    stuck = case.stuck
    order = sorted(
        (p for p in case.desync if not is_completed(case.history, p)),
        key=lambda p: (p not in stuck, p.seq),
    )
    findings = []
    for site in order[:MOST_MISMATCHES]:
        wrong = case.desync[site]
        who = name_ranks(wrong.culprits)
        blame = f"{who} at fault" if wrong.decided else f"no majority: cannot say who of {who}"
        guessed = [r for r, c in case.history.by_site[site].items() if c.group_is_guessed]
        doubt = (
            f" That the call of {name_ranks(sorted(guessed))} is of this group is inferred from "
            "its number; its lines do not name one."
            if guessed
            else ""
        )
        findings.append(
            Finding(
                f"{wrong.what}_mismatch",
                wrong.culprits,
                site,
                case.type_of(site),
                f"{case.describe(site)} differs between ranks: {wrong.words}; {blame}.{doubt}",
                frames_at(case, site, wrong.culprits),
                wrong.decided and not guessed,
            )
        )
    return findings


def wrong_groups(case: Case) -> list[Finding]:
    """Ranks that wait, are waited for, and called another group than ranks in like places."""
    wanted = set().union(*case.waits_for.values()) if case.waits_for else set()
    findings = []
    for turn in wrong_turns(case.history):
        if not {*turn.ranks} <= wanted & set(case.waiting):
            continue
        call = turn.call
        expected = turn.expected
        verb = "calls" if len(turn.ranks) == 1 else "call"
        findings.append(
            Finding(
                "wrong_group",
                turn.ranks,
                call.call_site,
                call.type,
                f"{name_ranks(turn.ranks)} {verb} {case.describe(call.call_site)} where "
                f"{name_ranks(turn.others)}, in like places, made calls like "
                f"{case.describe(expected.call_site)} (call {turn.number} of each): "
                f"{name_ranks(turn.ranks)} at fault.",
                call.frames,
            )
        )
    return findings


def find_missing_ranks(case: Case, astray: set[int]) -> list[Finding]:
    """Return the ranks that others wait for and that wait nowhere themselves.

    Who is waited for only by ranks that went astray is not missing.
    """
    wanted: dict[int, list[CallSite]] = defaultdict(list)
    away = {
        site: set().union(*(case.waits_for[r] for r in ranks if r not in astray))
        for site, ranks in case.stuck.items()
    }
    # First the calls that nobody else keeps from, where no program tells what comes next.
    for site in sorted(away, key=lambda p: (len(away[p] & set(case.waiting)), -len(case.stuck[p]))):
        for rank in sorted(away[site]):
            if rank in case.history.calls and rank not in case.waiting:
                wanted[rank].append(site)
    together: dict[tuple[CallSite, str, str | None, bool], list[int]] = defaultdict(list)
    for rank, places in wanted.items():
        waiting = [r for site in places for r in case.stuck[site]]
        next_site = in_order_of_program(case.history, rank, places, waiting)[0]
        last = case.history.calls[rank][-1:]
        stood = (
            f"; last call {case.describe(last[0].call_site)}{_find_innermost_frame(last[0].frames)}"
            if last
            else ""
        )
        is_open = bool(last) and case.history.may_have_timed_out(last[0])
        together[next_site, stood, last[0].frames if last else None, is_open].append(rank)
    return [
        Finding(
            "missing_rank",
            tuple(ranks),
            site,
            case.type_of(site),
            f"{name_ranks(ranks)} never came to {case.describe(site)}{stood}"
            f"{_OR_STUCK_THERE if is_open else ''}.",
            frames,
            decided=not is_open,
            excluded=() if is_open else tuple(ranks),
        )
        for (site, stood, frames, is_open), ranks in together.items()
    ]


_OR_STUCK_THERE = ", which may not have ended: this backend counts calls that timed out as done"


def _find_innermost_frame(frames: str | None) -> str:
    """Return the innermost frame that is not torch's own."""
    lines = frames.split("\n") if frames else []
    own = next((f for f in lines if "/torch/" not in f), lines[0] if lines else "")
    return f", from {own}" if own else ""


def find_wait_cycles(case: Case) -> list[Finding]:
    """Return the ranks that wait for each other in a circle."""
    ends = {r for others in case.waits_for.values() for r in others} - set(case.waiting)
    ends |= {r for r, others in case.waits_for.items() if not others}
    left = {r: case.waits_for[r] for r in case.waiting if r not in case.reaching(ends)}
    if not left:
        return []
    ring = cycle_among(left)
    steps = [
        f"rank {rank} waits at {case.describe(case.waiting[rank].call_site)} for rank {after}"
        for rank, after in zip(ring, [*ring[1:], *ring[:1]], strict=True)
    ]
    first = case.waiting[ring[0]]
    return [
        Finding(
            "cycle",
            tuple(sorted(ring)),
            first.call_site,
            first.type,
            f"{name_ranks(ring)} wait for each other in a circle: {'; '.join(steps)}.",
            first.frames,
        )
    ]
