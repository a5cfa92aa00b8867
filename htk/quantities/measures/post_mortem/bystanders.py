"""Findings beside the causes: ranks that only wait, undecided cases, notes on harmless calls."""

from collections import defaultdict

from htk.quantities.measures.call_history import CallSite
from htk.quantities.measures.desync import name_ranks
from htk.quantities.measures.post_mortem.case import Case, frames_at, is_completed
from htk.quantities.measures.post_mortem.causes import MOST_MISMATCHES
from htk.quantities.measures.post_mortem.finding import Finding


def find_stuck_complete(case: Case) -> list[Finding]:
    """Return calls that all members made alike and that do not end. Asked if no cause is known."""
    findings = []
    for site, ranks in case.stuck.items():
        calls = case.history.by_site[site]
        everyone = case.history.members(site)
        started = [r for r in everyone if r in calls and calls[r].started]
        seen = f" ({len(started)} saw it start)" if started else ""
        is_known = bool(site.group.ranks or site.pair) and site.group not in case.history.inferred
        words = (
            f"All {len(everyone)} ranks of {case.describe(site)} came to it{seen}, made the same "
            f"call, and it has not ended on {name_ranks(ranks)}: the network or a GPU, not the "
            "program."
            if is_known
            else f"{case.describe(site)} has not ended on {name_ranks(ranks)}; all that used the "
            "group "
            "came to it, and whether it has other members is not recorded."
        )
        findings.append(
            Finding(
                "not_completed" if is_known else "cannot_decide",
                tuple(ranks),
                site,
                case.type_of(site),
                words,
                calls[ranks[0]].frames,
                is_known,
            )
        )
    return findings


def find_dumpless_ranks(case: Case) -> list[Finding]:
    """Return the ranks without a dump that others wait for."""
    findings = []
    for site, ranks in case.stuck.items():
        lost = case.history.unknown(site)
        if not lost or (site in case.desync and case.desync[site].decided):
            continue
        waiting = f"{name_ranks(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"
        absent = case.history.absent(site)
        others = len(case.history.members(site)) - len(lost)
        is_open = site.group in case.history.open_ended
        unheard = case.name_unheard(site, lost)
        words = (
            f"{unheard} {case.silent}: whether they came to {case.describe(site)}, where "
            f"{waiting}, cannot be decided"
            if absent or others < 1
            else f"{unheard} {case.silent}, and {'all ' if others > 1 else 'the '}{others} "
            f"other{'s' if others > 1 else ''} came to {case.describe(site)}, where {waiting}: "
            f"{unheard} or the network"
        )
        excluded = tuple(lost) if not (absent or is_open or others <= len(lost)) else ()
        findings.append(
            Finding(
                "cannot_decide",
                tuple(lost),
                site,
                case.type_of(site),
                f"{words}.",
                decided=False,
                excluded=excluded,
            )
        )
    return findings


_GLOO = "gloo"


def nothing_pending(case: Case) -> Finding:
    dumped = case.history.dumped
    lost = f"; {name_ranks(case.undumped)} {case.silent}" if case.undumped else ""
    unseen = (
        "; gloo's recorder leaves out send and recv, and counts a call that timed out as done"
        if _GLOO in case.history.libraries
        else ""
    )
    words = f"No collective was left unfinished on {name_ranks(dumped)}{lost}{unseen}."
    return Finding("nothing_pending", tuple(dumped), None, None, words, decided=False)


def find_waiting_ranks(case: Case) -> list[Finding]:
    """Return who only waits, by the call they wait at."""
    findings = []
    for site, ranks in case.stuck.items():
        others = sorted(set().union(*(case.waits_for[r] for r in ranks)))
        away = f" for {case.name_unheard(site, others)}" if others else ""
        waiting_at = f"{'waits' if len(ranks) == 1 else 'wait'} at {case.describe(site)}"
        words = f"{name_ranks(ranks)} {waiting_at}{away}{_describe_abort(case, site)}."
        frames = frames_at(case, site, tuple(ranks))
        findings.append(Finding("waiting", tuple(ranks), site, case.type_of(site), words, frames))
    return findings


def find_other_unfinished(case: Case) -> list[Finding]:
    """Return waiting ranks' unfinished calls in other groups too: each group has its own stream."""
    ranks_at: dict[CallSite, list[int]] = defaultdict(list)
    for rank, first in case.waiting.items():
        seen = {first.call_site.group}
        for call in case.history.calls[rank]:
            if not call.completed and call.call_site.group not in seen:
                seen.add(call.call_site.group)
                ranks_at[call.call_site].append(rank)
    return [
        Finding(
            "waiting",
            tuple(ranks),
            site,
            case.type_of(site),
            f"{name_ranks(ranks)} {'has' if len(ranks) == 1 else 'have'} not ended "
            f"{case.describe(site)} either, the first such call in its group.",
            frames_at(case, site, tuple(ranks)),
        )
        for site, ranks in ranks_at.items()
    ]


def lone_messages(case: Case) -> list[Finding]:
    """Return the messages that timed out, and whose peer the watchdog does not tell."""
    findings = []
    for row in case.history.lone_messages:
        group = f" in group {row['group']}" if row["group"] else ""
        words = (
            f"rank {row['rank']} timed out in {row['type']} number {row['seq']}{group}; the "
            "watchdog does not tell with whom: a flight recorder would."
        )
        findings.append(
            Finding("cannot_decide", (row["rank"],), None, row["type"], words, row["frames"], False)
        )
    return findings


def _describe_abort(case: Case, site: CallSite) -> str:
    """Return that the watchdog's timeout ended a call, in words; empty where it did not."""
    calls = case.history.by_site[site].values()
    ages = [c.aborted_after_ns for c in calls if c.aborted_after_ns is not None]
    return f"; ended by its timeout after {max(ages) / 1e9:.0f} s" if ages else ""


def list_settled_mismatches(case: Case) -> list[Finding]:
    """Return disagreements in calls that all completed: worth knowing, and not what hangs."""
    done = [p for p in case.desync if is_completed(case.history, p)]
    return [
        Finding(
            "note",
            case.desync[site].culprits,
            site,
            case.type_of(site),
            f"{case.describe(site)} differs between ranks, and all completed it: "
            f"{case.desync[site].words}.",
            frames_at(case, site, case.desync[site].culprits),
            decided=False,
        )
        for site in sorted(done, key=lambda p: p.seq)[:MOST_MISMATCHES]
    ]


def find_progress_between_dumps(case: Case) -> list[Finding]:
    """Return who went on between several dumps of one job."""
    moved = [r for r, went_on in case.history.moved.items() if went_on]
    still = [r for r, went_on in case.history.moved.items() if not went_on]
    if not moved and not still:
        return []
    words = [f"{name_ranks(moved)} went on"] if moved else []
    words += [f"{name_ranks(still)} did not move"] if still else []
    once = set(case.history.dumped) - set(case.history.moved)
    rest = f"; of {name_ranks(sorted(once))} there is one dump, or alike ones" if once else ""
    text = f"Between their first and their last dump {' and '.join(words)}{rest}."
    return [Finding("note", tuple(still), None, None, text, decided=False)]
