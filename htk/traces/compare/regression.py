"""The gate: did a step become slower than it may, and is that more than noise?

A rule such as `step_time>5%` trips where the change exceeds its limit and also what chance
explains. Student's t, one-sided; the chance of a false alarm is shared among the rules, and within
a rule such as `each kernel>10%` among all kernels (Holm).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Literal

import numpy as np
import pyarrow as pa

from htk.base.core.humanize import format_duration, pluralize_count, shorten_text
from htk.base.core.label import Label
from htk.base.errors import UsageError
from htk.base.names.kinds import kind_of
from htk.base.schema import FLOAT64, TEXT, table
from htk.quantities.measures.chance import explained_by_chance
from htk.traces.compare.baseline import LEAST_STEPS, RecordedBaseline, Series
from htk.traces.compare.items import TRANSFER, UNDETERMINED
from htk.traces.compare.rules import Rule, Unit
from htk.traces.compare.significance import Chance, compute_of, stack_spreads, surer_by_compute

FALSE_ALARMS = 0.005  # of a gate whose rules would all hold, by chance
Verdict = Literal["passed", "failed", "too noisy", "too few steps", "not recorded"]

RETURNS = table(
    rule=(TEXT, "What may not happen."),
    verdict=(TEXT, "passed, failed, too noisy, too few steps (to tell) or not recorded."),
    name=(TEXT, "What was judged; with `each` the thing that is worst."),
    base_ns=(FLOAT64, "Time in a step, mean over steps and ranks (or the least of them)."),
    new_ns=(FLOAT64, "The same, of the new recording."),
    diff_ns=(FLOAT64, "New less base."),
    change_in_unit=(
        FLOAT64,
        "The change in the rule's unit; null where there was nothing.",
    ),
    limit=(FLOAT64, "What it may be at most."),
    noise=(FLOAT64, "What chance explains; a smaller change is not told from none."),
    unit=(TEXT, "%: of the base; pp: points of the step's time; ns."),
    reason=(TEXT, "The verdict in words."),
)


@dataclass(frozen=True)
class Judgement:
    rule: Rule
    verdict: Verdict
    base_ns: float
    new_ns: float
    change: float | None
    noise: float | None
    reason: str
    name: str = ""


@dataclass(frozen=True)
class _Limits:
    """What counts as a regression, beside each rule's own limit."""

    chance: float  # of a false alarm of one rule
    min_abs_ns: int
    run_noise_pct: float | None  # null: what is usual


def judge_rules(
    base: RecordedBaseline,
    new: RecordedBaseline,
    rules: Sequence[Rule],
    *,
    min_abs_ns: int = 0,
    run_noise_pct: float | None = None,
) -> list[Judgement]:
    """Return each rule, judged."""
    limits = _Limits(FALSE_ALARMS / max(len(rules), 1), min_abs_ns, run_noise_pct)
    return [_judge_rule(base, new, asked, limits) for asked in rules]


def _judge_rule(
    base: RecordedBaseline, new: RecordedBaseline, asked: Rule, limits: _Limits
) -> Judgement:
    few = _too_few(base, new)
    if not (base.steps and new.steps):
        return Judgement(asked, "too few steps", 0.0, 0.0, None, None, few)
    pairs = _select_series(base, new, asked)
    if few or (asked.kind == "comm" and (few := _cannot_be_told(base, new, asked))):
        was = sum(pair[0].mean for pair in pairs.values())
        now = sum(pair[1].mean for pair in pairs.values())
        verdict: Verdict = "too few steps" if few.startswith("complete") else "not recorded"
        return Judgement(asked, verdict, was, now, None, None, few, asked.name)
    judged = _all_judged(base, new, asked, pairs, limits)
    return _select_worst(asked, judged) if asked.each else judged[0]


def _select_series(
    base: RecordedBaseline, new: RecordedBaseline, asked: Rule
) -> dict[str, tuple[Series, Series]]:
    """Return what the rule speaks of, on both sides; added up, unless each is judged by itself."""
    was = {name: s for name, s in base.kinds.get(asked.kind, {}).items() if asked.holds(name)}
    now = {name: s for name, s in new.kinds.get(asked.kind, {}).items() if asked.holds(name)}
    if not was and not now:
        names = [shorten_text(n, 40) for n in {**base.kinds.get(asked.kind, {})}][:5]
        there = f"; in the base are {', '.join(names)}, …" if names else ""
        raise UsageError(f"{asked.text!r}: neither recording has such a {asked.kind}{there}")
    if not asked.each:
        return {asked.name: (_sum_series([*was.values()], base), _sum_series([*now.values()], new))}
    return {
        name: (was.get(name, base.nothing()), now.get(name, new.nothing()))
        for name in {**was, **now}
        if not (asked.is_every_kernel and kind_of(name, "kernel").kind == "comm")
    }


def _sum_series(things: list[Series], side: RecordedBaseline) -> Series:
    return reduce(add, things) if things else side.nothing()


def _all_judged(
    base: RecordedBaseline,
    new: RecordedBaseline,
    asked: Rule,
    pairs: dict[str, tuple[Series, Series]],
    limits: _Limits,
) -> list[Judgement]:
    """Return a judgement of each thing; the chance of a false alarm is shared among them."""
    chance = Chance(base, new, asked.kind, limits.run_noise_pct)
    scaled = [_scale_series(pair, asked, base, new) for pair in pairs.values()]
    spreads = [chance.compute_spread(*pair) for pair in scaled]
    if asked.is_step and (compute := compute_of(base, new)):
        spreads = [surer_by_compute(chance, scaled[0], compute, limits.chance)]
    grown = np.array([now.mean - was.mean for was, now in scaled])
    noise = explained_by_chance(grown, *stack_spreads(spreads), limits.chance, sides=1)
    return [
        _judge_one(asked, name, pair, (scaled[k][0].mean, float(grown[k]), float(noise[k])), limits)
        for k, (name, pair) in enumerate(pairs.items())
    ]


def _scale_series(
    pair: tuple[Series, Series], asked: Rule, base: RecordedBaseline, new: RecordedBaseline
) -> tuple[Series, Series]:
    """Return both sides in the rule's terms: points of the step, the least over ranks."""
    was, now = pair
    if asked.least:
        was, now = (Series(s.often, s.least, s.by_rank[:0], s.least) for s in pair)
    return (
        (_compute_step_share(was, base), _compute_step_share(now, new))
        if asked.unit == "pp"
        else (was, now)
    )


def _compute_step_share(series: Series, side: RecordedBaseline) -> Series:
    """Percent of the step, step by step and rank by rank."""
    step = side.kinds["time"]["total"]
    by_step = np.maximum(step.by_step, 1)
    by_rank = np.maximum(step.by_rank, 1)[: len(series.by_rank)]
    return Series(
        series.often,
        100 * series.by_step / by_step,
        100 * series.by_rank / by_rank,
        100 * series.least / by_step,
    )


def _judge_one(
    asked: Rule,
    name: str,
    pair: tuple[Series, Series],
    measured: tuple[float, float, float],
    limits: _Limits,
) -> Judgement:
    mean, grown, noise = measured
    base_ns, new_ns = (float((s.least if asked.least else s.by_step).mean()) for s in pair)
    if asked.unit == "%":
        if not mean:
            return _judge_appeared(asked, name, new_ns, noise, limits.min_abs_ns)
        grown = 100 * grown / mean
        noise = 100 * noise / mean
    unit_ns = {"%": base_ns / 100, "pp": base_ns / max(mean, 1e-9), "ns": 1.0}[asked.unit]
    small = abs(new_ns - base_ns) < limits.min_abs_ns
    matters = (grown + noise) * unit_ns >= limits.min_abs_ns
    verdict, reason = _reach_verdict(asked, grown, noise, small, matters)
    return Judgement(asked, verdict, base_ns, new_ns, grown, noise, reason, name)


def _too_few(base: RecordedBaseline, new: RecordedBaseline) -> str:
    sides = (("the base", base.steps), ("the new recording", new.steps))
    short = [f"{n} in {name}" for name, n in sides if n < LEAST_STEPS]
    many = f"; record {LEAST_STEPS} at least, better 10"
    return "complete steps: " + " and ".join(short) + many if short else ""


def _cannot_be_told(base: RecordedBaseline, new: RecordedBaseline, asked: Rule) -> str:
    """Why transfer cannot be told from waiting, where that is more than the rule allows for."""
    for word, side in (("base", base), ("new recording", new)):
        things = side.kinds.get("comm", {})
        unknown = sum(s.mean for name, s in things.items() if name.endswith(UNDETERMINED))
        moving = sum(s.mean for name, s in things.items() if name.endswith(TRANSFER))
        step = side.kinds["time"]["total"].mean
        allowed = {"%": moving / 100, "pp": step / 100, "ns": 1.0}[asked.unit] * asked.limit
        if unknown > allowed:
            time = format_duration(round(unknown))
            return f"{time} of a step of the {word} is wait or transfer: ranks were not recorded"
    return ""


def _reach_verdict(
    asked: Rule, grown: float, noise: float, small: bool, matters: bool
) -> tuple[Verdict, str]:
    change = spell_change(grown, asked.unit)
    limit = spell_change(asked.limit, asked.unit).lstrip("+")
    if grown > asked.limit and grown > noise and not small:
        return "failed", f"{change}, more than {limit} and than noise"
    if grown > asked.limit and grown > noise:
        return "passed", f"{change}, but less time than --min-abs"
    resolution = spell_change(noise, asked.unit).lstrip("+")
    if noise > asked.limit and grown + noise > asked.limit and matters:
        return (
            "too noisy",
            f"{change}; only more than {resolution} can be told here: record more steps",
        )
    return "passed", f"{change}; noise is {resolution}"


def _judge_appeared(
    asked: Rule, name: str, new_ns: float, noise: float, min_abs_ns: int
) -> Judgement:
    """Return what was not there has no change in percent."""
    failed = new_ns > max(noise, min_abs_ns)
    reason = f"not in the base; now {format_duration(new_ns)} of a step"
    verdict: Verdict = "failed" if failed and not asked.each else "passed"
    return Judgement(asked, verdict, 0.0, new_ns, None, None, reason, name)


def _select_worst(asked: Rule, judged: list[Judgement]) -> Judgement:
    """Return one judgement for all things of a rule: what failed, else what cannot be told."""
    for verdict in ("failed", "too noisy"):
        alike = [j for j in judged if j.verdict == verdict]
        alike.sort(key=lambda j: j.base_ns - j.new_ns)
        if alike:
            names = "; ".join(f"{shorten_text(j.name, 60)}: {j.reason}" for j in alike[:3])
            more = f"; and {len(alike) - 3} more" if len(alike) > 3 else ""
            return replace(alike[0], reason=f"{len(alike)} of {len(judged)}: {names}{more}")
    largest = max(judged, key=lambda j: -np.inf if j.change is None else j.change)
    added = sum(j.change is None for j in judged)
    many = f"{pluralize_count(len(judged), asked.kind)} judged; largest change: "
    rest = f"; {added} not in the base" if added else ""
    reason = f"{many}{shorten_text(largest.name, 60)}: {largest.reason}{rest}"
    return replace(largest, reason=reason)


def spell_change(value: float, unit: Unit) -> str:
    """Return a change as people read it: +7.2 %."""
    sign = "+" if value > 0 else "−" if value < 0 else ""
    if unit == "ns":
        return sign + format_duration(abs(value))
    return f"{sign}{abs(value):.{1 if abs(value) >= 1 else 2}f} {unit}"


def build_judgement_table(judged: Sequence[Judgement]) -> pa.Table:
    """Return the judgements as a table."""
    return pa.Table.from_pylist(
        [_build_judgement_row(judgement) for judgement in judged], schema=RETURNS
    )


def _build_judgement_row(judged: Judgement) -> dict[str, object]:
    return {
        "rule": judged.rule.text,
        "verdict": judged.verdict,
        "name": judged.name or None,
        "base_ns": judged.base_ns,
        "new_ns": judged.new_ns,
        "diff_ns": judged.new_ns - judged.base_ns,
        "change_in_unit": judged.change,
        "limit": judged.rule.limit,
        "noise": judged.noise,
        "unit": judged.rule.unit,
        "reason": judged.reason,
    }


GATE = Label("gate", "Did a step become slower than it may?")
