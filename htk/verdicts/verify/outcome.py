"""All checks of a trace, one after the other."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from htk.answers.output.coverage_text import damage_words
from htk.base.core.analysis import analysis
from htk.base.core.humanize import pluralize_count
from htk.base.schema import INT64, TEXT, table
from htk.traces.trace.coverage import describe_coverage
from htk.traces.trace.trace import Trace
from htk.verdicts.verify import (
    against_reading,
    identities,
    occupancy,
    other_formats,
    reopened,
    tables_beside,
)
from htk.verdicts.verify.check import Check
from htk.verdicts.verify.subject import Subject
from htk.verdicts.verify.tally import NotApplicable, Tally

OK = "ok"
DIFFERS = "differs"
NOT_APPLICABLE = "not applicable"
RETURNS = table(
    check=(TEXT, "Name of the check."),
    compared=(TEXT, "What is compared with what."),
    state=(TEXT, "ok, differs or not applicable."),
    values=(INT64, "Values that were compared; null where not applicable."),
    differences=(INT64, "Of those, how many differ."),
    finding=(TEXT, "The first differences, why the check does not apply, what it left out."),
)


@dataclass(frozen=True)
class Outcome:
    """What one check results."""

    check: Check
    state: str
    tally: Tally
    finding: str


def all_checks() -> list[Check]:
    """Return every check, in the order of the answer."""
    return [
        *against_reading.checks(),
        *other_formats.checks(),
        *tables_beside.checks(),
        *identities.checks(),
        *occupancy.checks(),
        *reopened.checks(),
    ]


def list_outcomes(subject: Subject, checks: Iterable[Check] | None = None) -> Iterator[Outcome]:
    """Make the checks, all unless some are chosen, one after the other."""
    for check in all_checks() if checks is None else checks:
        tally = Tally()
        try:
            check.function(subject, tally)
        except NotApplicable as reason:
            if not tally.different:
                yield Outcome(check, NOT_APPLICABLE, tally, str(reason))
                continue
            tally.left_out.append(str(reason))
        state = DIFFERS if tally.different else OK
        left_out = f"; left out: {'; '.join(tally.left_out[:3])}" if tally.left_out else ""
        yield Outcome(check, state, tally, tally.finding + left_out)


def summarise_outcomes(results: list[Outcome], trace: Trace) -> str:
    """Return the last line: how many checks are ok, differ, do not apply, and what cannot be."""
    states = [outcome.state for outcome in results]
    ok = states.count(OK)
    differ = states.count(DIFFERS)
    left = len(states) - ok - differ
    facts = describe_coverage(trace, ())
    damage = damage_words(facts)
    unread = damage_words(facts, ("unread_events",))
    parts = [
        f"{pluralize_count(len(states), 'check')}: {ok} ok, {differ} differ, {left} not applicable",
        damage and f"the recording is damaged: {damage}",
        unread and f"held to none: {unread}",
    ]
    return "; ".join(filter(None, parts))


@analysis(returns=RETURNS)
def verify(subject: Subject) -> pa.Table:
    """Is what htk answers of this trace right?"""
    return as_table(list(list_outcomes(subject)))


def as_table(results: list[Outcome]) -> pa.Table:
    """Return the outcomes as a table."""
    applied = [outcome.state != NOT_APPLICABLE for outcome in results]
    columns = {
        "check": [outcome.check.name for outcome in results],
        "compared": [outcome.check.compared for outcome in results],
        "state": [outcome.state for outcome in results],
        "values": [o.tally.compared if a else None for o, a in zip(results, applied, strict=True)],
        "differences": [
            o.tally.different if a else None for o, a in zip(results, applied, strict=True)
        ],
        "finding": [outcome.finding for outcome in results],
    }
    return pa.table(
        [pa.array(columns[field.name]).cast(field.type) for field in RETURNS], schema=RETURNS
    )
