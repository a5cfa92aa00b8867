"""The gate: did a step become slower than it may, and is that more than noise?

A rule such as `step_time>5%` trips where the change exceeds its limit and also what chance
explains. Chance is told from three sides: how the steps of each recording differ among themselves,
how the change differs from rank to rank (other GPUs run the same kernels a little faster), and
what two runs of the same thing differ by though neither steps nor ranks show it. Student's t with
Welch's degrees of freedom, one-sided; the chance of a false alarm is shared among the rules.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Literal

import numpy as np
import pyarrow as pa

from htk.columns.arrow import texts
from htk.compare.baseline import LEAST_STEPS, RecordedBaseline, Series, facts_of
from htk.compare.runs import EACH, SIGMAS, By
from htk.compare.runs import RETURNS as CHANGES
from htk.core.analysis import with_coverage
from htk.core.humanize import format_duration, parse_duration, pluralize, shorten
from htk.core.label import Label
from htk.errors import UsageError
from htk.schema import TEXT, table

Unit = Literal["%", "pp", "ns"]

FALSE_ALARMS = 0.005  # of a gate whose rules would all hold, by chance
RUN_NOISE_PCT = 0.3  # standard deviation of a run of the same thing, which its steps do not show

PARTS = {
    "step_time": "total",
    "compute": "compute",
    "exposed_comm": "exposed communication",
    "exposed_copies": "exposed copies",
    "idle": "idle",
}
_RULE = re.compile(r"\s*([^<>]+?)\s*>\s*(\d+(?:\.\d+)?)\s*(%|pp|ns|us|µs|ms|s)\s*")
_HOW = (
    "WHAT>LIMIT: WHAT is "
    + ", ".join(PARTS)
    + ", or kernel:, op:, module: or phase: with part of a name (* for anything); LIMIT is in %, "
    "pp (points of the step's time), ns, us, ms or s"
)

RETURNS = table(
    rule=(TEXT, "What may not happen."),
    verdict=(TEXT, "passed, failed, too noisy or too few steps (to tell)."),
    base_ns=(pa.float64(), "Time in a step, mean over ranks and steps."),
    new_ns=(pa.float64(), "The same, of the new recording."),
    diff_ns=(pa.float64(), "New less base."),
    change=(pa.float64(), "The change in the unit of the rule; null where there was nothing."),
    limit=(pa.float64(), "What it may be at most."),
    noise=(pa.float64(), "What chance explains; a smaller change is not told from none."),
    unit=(TEXT, "%: of the base; pp: points of the step's time; ns."),
    reason=(TEXT, "The verdict in words."),
)


@dataclass(frozen=True)
class Rule:
    """What may not grow, and by how much."""

    text: str
    kind: By
    name: str
    limit: float
    unit: Unit

    def holds(self, name: str) -> bool:
        """Whether a thing of that name is meant."""
        if self.kind == "time":
            return name == self.name
        return re.search(".*".join(map(re.escape, self.name.split("*"))), name) is not None


@dataclass(frozen=True)
class Judgement:
    rule: Rule
    verdict: Literal["passed", "failed", "too noisy", "too few steps"]
    base_ns: float
    new_ns: float
    change: float | None
    noise: float | None
    reason: str


def rule(text: str) -> Rule:
    """`step_time>5%`, `exposed_comm>2pp`, `kernel:flash_fwd>10%`, `idle>3ms`."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no rule; write one as {_HOW}")
    what, size, unit = match.groups()
    kind, colon, name = what.partition(":")
    if unit == "pp" and what == "step_time":
        raise UsageError(f"{text!r}: a step is always 100 % of itself; give % or a time")
    limit, measured = (
        (float(size), unit) if unit in ("%", "pp") else (parse_duration(size + unit), "ns")
    )
    if not colon and what in PARTS:
        return Rule(text, "time", PARTS[what], limit, measured)  # type: ignore[arg-type]
    if colon and name and kind in EACH and kind != "time":
        return Rule(text, kind, name, limit, measured)  # type: ignore[arg-type]
    raise UsageError(f"{text!r} is no rule; write one as {_HOW}")


def judge(
    base: RecordedBaseline,
    new: RecordedBaseline,
    rules: Sequence[Rule],
    *,
    min_abs_ns: int = 0,
    run_noise_pct: float = RUN_NOISE_PCT,
) -> list[Judgement]:
    """Each rule, judged."""
    chance = FALSE_ALARMS / max(len(rules), 1)
    return [_judged(base, new, each, chance, min_abs_ns, run_noise_pct) for each in rules]


def _judged(
    base: RecordedBaseline,
    new: RecordedBaseline,
    asked: Rule,
    chance: float,
    min_abs_ns: int,
    run_pct: float,
) -> Judgement:
    few = _too_few(base, new)
    if not (base.steps and new.steps):
        return Judgement(asked, "too few steps", 0.0, 0.0, None, None, few)
    was, now = _series_of(base, new, asked)
    base_ns, new_ns = float(was.by_step.mean()), float(now.by_step.mean())
    if few:
        return Judgement(asked, "too few steps", base_ns, new_ns, None, None, few)
    if asked.unit == "pp":
        was, now = _share(was, base), _share(now, new)
    paired = base.ranks == new.ranks
    mean = float(was.by_step.mean())
    grown = float(now.by_step.mean()) - mean
    noise = _noise(was, now, paired, chance, run_pct / 100 * mean)
    if asked.unit == "%":
        if not mean:
            return _appeared(asked, new_ns, noise, min_abs_ns)
        grown, noise = 100 * grown / mean, 100 * noise / mean
    verdict, reason = _verdict(asked, grown, noise, abs(new_ns - base_ns) < min_abs_ns)
    return Judgement(asked, verdict, base_ns, new_ns, grown, noise, reason)


def _too_few(base: RecordedBaseline, new: RecordedBaseline) -> str:
    sides = (("the base", base.steps), ("the new recording", new.steps))
    short = [f"{n} in {name}" for name, n in sides if n < LEAST_STEPS]
    many = f"; record {LEAST_STEPS} at least, better 10"
    return "complete steps: " + " and ".join(short) + many if short else ""


def _verdict(
    asked: Rule, grown: float, noise: float, small: bool
) -> tuple[Literal["passed", "failed", "too noisy"], str]:
    change, limit = shown(grown, asked.unit), shown(asked.limit, asked.unit).lstrip("+")
    if grown > asked.limit and grown > noise and not small:
        return "failed", f"{change}, more than {limit} and than noise"
    if grown > asked.limit and grown > noise:
        return "passed", f"{change}, but less time than --min-abs"
    resolution = shown(noise, asked.unit).lstrip("+")
    if noise > asked.limit and grown + noise > asked.limit:
        return (
            "too noisy",
            f"{change}; only more than {resolution} can be told here: record more steps",
        )
    return "passed", f"{change}; noise is {resolution}"


def _appeared(asked: Rule, new_ns: float, noise: float, min_abs_ns: int) -> Judgement:
    """What was not there has no change in percent."""
    failed = new_ns > max(noise, min_abs_ns)
    reason = f"not in the base; now {format_duration(new_ns)} of a step"
    return Judgement(asked, "failed" if failed else "passed", 0.0, new_ns, None, None, reason)


def _series_of(base: RecordedBaseline, new: RecordedBaseline, asked: Rule) -> tuple[Series, Series]:
    """What the rule speaks of, added up on both sides."""
    sides = []
    for side in (base, new):
        things = side.kinds.get(asked.kind, {})
        sides.append([series for name, series in things.items() if asked.holds(name)])
    if not any(sides):
        names = [shorten(n, 40) for n in {**base.kinds.get(asked.kind, {})}][:5]
        there = f"; in the base are {', '.join(names)}, …" if names else ""
        raise UsageError(f"{asked.text!r}: neither recording has such a {asked.kind}{there}")
    was, now = sides
    return _total(was, base), _total(now, new)


def _total(things: list[Series], side: RecordedBaseline) -> Series:
    return reduce(add, things) if things else side.nothing()


def _share(series: Series, side: RecordedBaseline) -> Series:
    """Percent of the step, step by step and rank by rank."""
    step = side.kinds["time"]["total"]
    return Series(
        series.often,
        100 * series.by_step / np.maximum(step.by_step, 1),
        100 * series.by_rank / np.maximum(step.by_rank, 1),
    )


def _noise(was: Series, now: Series, paired: bool, chance: float, run: float) -> float:
    """What the means differ by, by chance, in all but `chance` of the cases."""
    parts = [float(s.by_step.var(ddof=1)) / len(s.by_step) for s in (was, now)]
    free = [len(s.by_step) - 1 for s in (was, now)]
    steps = sum(parts)
    welch = steps**2 / sum(v**2 / f for v, f in zip(parts, free, strict=True)) if steps else 1000.0
    total = steps + _between_ranks(was, now, paired) + 2 * run**2
    return student(chance, welch) * float(np.sqrt(total))


def _between_ranks(was: Series, now: Series, paired: bool) -> float:
    """Variance of the mean change, as ranks differ in it."""
    if paired and len(was.by_rank) > 1:
        return float((now.by_rank - was.by_rank).var(ddof=1)) / len(was.by_rank)
    sides = [s.by_rank for s in (was, now) if len(s.by_rank) > 1]
    return sum(float(s.var(ddof=1)) / len(s) for s in sides) if not paired else 0.0


def student(chance: float, free: float) -> float:
    """What Student's t exceeds with that chance: its density, with t = √f·tan θ, is cos^(f-1) θ."""
    theta = np.linspace(-np.pi / 2, np.pi / 2, 20_001)
    density = np.maximum(np.cos(theta), 0.0) ** (min(max(free, 1.0), 1000.0) - 1)
    below = np.cumsum(density) - density / 2
    angle = np.interp(1 - chance, below / density.sum(), theta)
    return float(np.sqrt(min(max(free, 1.0), 1000.0)) * np.tan(angle))


def shown(value: float, unit: Unit) -> str:
    """A change as people read it: +7.2 %."""
    sign = "+" if value > 0 else "−" if value < 0 else ""
    if unit == "ns":
        return sign + format_duration(abs(value))
    return f"{sign}{abs(value):.{1 if abs(value) >= 1 else 2}f} {unit}"


def answer(judged: Sequence[Judgement], base: RecordedBaseline, new: RecordedBaseline) -> pa.Table:
    """The judgements as a table."""
    rows = [(j.rule, j) for j in judged]

    def column(values: list[float | None]) -> pa.Array:
        return pa.array(values, pa.float64())

    columns = [
        texts([r.text for r, _ in rows]),
        texts([j.verdict for _, j in rows]),
        column([j.base_ns for _, j in rows]),
        column([j.new_ns for _, j in rows]),
        column([j.new_ns - j.base_ns for _, j in rows]),
        column([j.change for _, j in rows]),
        column([r.limit for r, _ in rows]),
        column([j.noise for _, j in rows]),
        texts([r.unit for r, _ in rows]),
        texts([j.reason for _, j in rows]),
    ]
    facts = facts_of(base, "base") | facts_of(new, "new")
    return with_coverage(pa.table(columns, schema=RETURNS), **facts)


def changes(
    base: RecordedBaseline, new: RecordedBaseline, kinds: tuple[By, ...], n: int
) -> pa.Table:
    """What changed, n things of each kind (0: all), where one side is known by its baseline."""
    rows: list[list[object]] = []
    for kind in kinds:
        was, now = base.kinds.get(kind, {}), new.kinds.get(kind, {})
        changed = [_change(kind, name, was.get(name), now.get(name)) for name in {**was, **now}]
        changed.sort(key=lambda row: -abs(row[7]))  # type: ignore[arg-type]
        rows += changed[: n or None]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in CHANGES]
    arrays = [
        texts(values) if field.type == TEXT else pa.array(values, field.type)
        for field, values in zip(CHANGES, columns, strict=True)
    ]
    facts = facts_of(base, "base") | facts_of(new, "new")
    return with_coverage(pa.table(arrays, schema=CHANGES), compared="a step", **facts)


def _change(kind: str, name: str, was: Series | None, now: Series | None) -> list[object]:
    means = [0.0 if s is None else float(s.by_step.mean()) for s in (was, now)]
    spreads = [
        float(s.by_step.var(ddof=1)) / len(s.by_step)
        for s in (was, now)
        if s is not None and len(s.by_step) > 1
    ]
    diff = means[1] - means[0]
    noise = SIGMAS * float(np.sqrt(sum(spreads))) if spreads else None
    certain = None if noise is None else abs(diff) > noise
    word = "slower" if diff > 0 else "faster"
    if was is None or now is None:
        word = "added" if was is None else "removed"
    elif certain is False or not diff:
        word = "same"
    often = [0.0 if s is None else s.often for s in (was, now)]
    share = 100 * diff / means[0] if means[0] else None
    return [kind, name, word, *often, *means, diff, share, noise, certain]


def markdown(
    judged: Sequence[Judgement], changed: pa.Table, base: RecordedBaseline, new: RecordedBaseline
) -> str:
    """For a pull request: the verdict, the rules, and folded what changed most."""
    failed = [j for j in judged if j.verdict == "failed"]
    unsure = [j for j in judged if j.verdict.startswith("too")]
    headline = "no regression"
    if failed:
        headline = f"{len(failed)} of {len(judged)} limits exceeded"
    elif unsure:
        headline = f"{len(unsure)} of {len(judged)} limits could not be judged"
    mark = "❌" if failed else "⚠️" if unsure else "✅"
    lines = [f"### {mark} htk gate: {headline}", ""]
    lines += ["| rule | base | new | change | noise | verdict |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | --- |"]
    for j in judged:
        change = "–" if j.change is None else shown(j.change, j.rule.unit)
        noise = "–" if j.noise is None else shown(j.noise, j.rule.unit).lstrip("+")
        times = f"{format_duration(j.base_ns)} | {format_duration(j.new_ns)}"
        lines.append(f"| `{_cell(j.rule.text)}` | {times} | {change} | {noise} | **{j.verdict}** |")
    lines += ["", *(f"- `{_cell(j.rule.text)}`: {j.reason}" for j in failed + unsure)]
    lines += ["", *_details(changed)]
    who = " · ".join(
        f"{name}: {pluralize(side.steps, 'step')}, {pluralize(len(side.ranks), 'rank')}"
        for name, side in (("base", base), ("new", new))
    )
    return "\n".join([*lines, "", f"<sub>{who}; times are of a step, means over ranks</sub>", ""])


def _details(changed: pa.Table) -> list[str]:
    rows = [row for row in changed.to_pylist() if row["change"] != "same"]
    if not rows:
        return ["Nothing else changed by more than the noise of the steps."]
    lines = ["<details><summary>What changed most</summary>", ""]
    lines += [
        "| | name | change | base | new | difference |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        share = "" if row["diff_pct"] is None else f" ({row['diff_pct']:+.1f} %)"
        times = f"{format_duration(row['base_ns'])} | {format_duration(row['new_ns'])}"
        name = _cell(shorten(row["name"], 60))
        lines.append(
            f"| {row['by']} | `{name}` | {row['change']} | {times} | "
            f"{shown(row['diff_ns'], 'ns')}{share} |"
        )
    return [*lines, "", "</details>"]


def _cell(text: str) -> str:
    """Text that cannot leave its cell of a table."""
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")


GATE = Label("gate", "Did a step become slower than it may?")
