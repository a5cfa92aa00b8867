"""Two recordings side by side: what became slower, faster, more, less, new or gone.

Counts and times are of a step, as means over ranks and complete steps, so that recordings of
different length compare. Without steps on both sides, kernels and operators are compared by the
time of a call, all else by the time in a second recorded: how much fell into a recording says
nothing about speed. A difference is significant where it exceeds what chance explains; the chance
of a false alarm is shared among all things of a kind, shown or not.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats
from htk.base.core.analysis import with_coverage
from htk.base.core.humanize import format_duration
from htk.base.core.label import Label
from htk.base.schema import BOOL, FLOAT64, TEXT, table
from htk.quantities.measures.chance import explained_by_chance
from htk.traces.compare.baseline import RecordedBaseline, Series, build_cost_baseline, facts_of
from htk.traces.compare.items import EACH, READERS, By, Items, Side, Tables
from htk.traces.compare.significance import Chance, compute_of, stack_spreads, surer_by_compute

_OF_CALLS = ("kernel", "op")
_NS_PER_S = 1_000_000_000
FALSE_ALARMS = 0.01  # chance that equal runs show one significant row of a kind
_SAME = 0.02  # of base: a change that is smaller, with its noise, is none
_FEW_STEPS = 3

RETURNS = table(
    by=(TEXT, "cause, time, comm; or what the row stands for: kernel, family, op, …"),
    name=(TEXT, "What is compared: GPU time, but of op the host's (callees included)."),
    ranks=(TEXT, "The ranks that a cause is of; null: the mean over all."),
    change=(
        TEXT,
        "added, removed; slower or faster where chance does not explain it; same where the change "
        "is within 2 % with all that chance explains; else unclear.",
    ),
    base_count=(
        FLOAT64,
        "How often in a step (without steps: in a second recorded), mean over ranks.",
    ),
    new_count=(FLOAT64, "The same, of the new recording."),
    base_ns=(
        FLOAT64,
        "Time in a step, mean over ranks; without steps that of a call, or in a second.",
    ),
    new_ns=(FLOAT64, "The same, of the new recording."),
    diff_ns=(FLOAT64, "New less base; of a cause its part of the step's change."),
    diff_pct=(FLOAT64, "That, of base; null where it is new."),
    noise_ns=(FLOAT64, "What chance explains of diff_ns; null with less than two steps."),
    significant=(BOOL, "The difference exceeds the noise; null where that is unknown."),
    basis=(
        TEXT,
        "Of a cause: replayed, its part of the step's change; or recorded, where the step could "
        "not be replayed: its own time.",
    ),
)


class _Rows(NamedTuple):
    """Things of one kind on both sides, a row each."""

    names: list[str]
    was_often: Floats
    now_often: Floats
    was: Floats
    now: Floats
    noise: Floats  # NaN: unknown
    weight: float | Floats = 1.0  # how often the difference comes, for the order of rows


def compare_runs(base: Tables, new: Tables, by: tuple[By, ...] = EACH, n: int = 20) -> pa.Table:
    """Return what changed from base to new: n rows of each kind (0: all), significant first."""
    sides = build_cost_baseline(base, by), build_cost_baseline(new, by)
    notes = _describe_unlike(base, new)
    if all(side.steps for side in sides):
        return _of_steps(*sides, by, n, notes)
    pair = Side(base, with_steps=False), Side(new, with_steps=False)
    rows = [_build_change_table(kind, _without_steps(kind, *pair), n) for kind in by]
    what = "a call of a kernel or operator, a second recorded of all else"
    return _build_answer(rows, what, *sides, notes)


def list_cost_changes(
    base: RecordedBaseline, new: RecordedBaseline, by: tuple[By, ...], n: int
) -> pa.Table:
    """Return what changed between recordings that are known by what their steps cost."""
    return _of_steps(base, new, by, n, [])


def _of_steps(
    base: RecordedBaseline, new: RecordedBaseline, by: tuple[By, ...], n: int, notes: list[str]
) -> pa.Table:
    if not (base.steps and new.steps):
        return _build_answer([], "a step", base, new, notes)
    rows = [_build_change_table(kind, _by_step(kind, base, new), n) for kind in by]
    if min(base.steps, new.steps) < _FEW_STEPS:
        notes = [*notes, "fewer than three complete steps on a side: chance is hardly known"]
    return _build_answer(rows, "a step", base, new, notes)


def _describe_unlike(base: Tables, new: Tables) -> list[str]:
    """Return what to say where GPU work was recorded on one side alone."""
    has_work = [side["rank_windows"].num_rows > 0 for side in (base, new)]
    if has_work[0] == has_work[1]:
        return []
    here, there = ("base", "new recording") if has_work[0] else ("new recording", "base")
    return [
        f"GPU work was recorded in the {here} alone: times of steps are the host's in the {there}, "
        "and no GPU time was added or removed"
    ]


def _unlike_sides(base: RecordedBaseline, new: RecordedBaseline) -> list[str]:
    """Return what both recordings were made on, where that is not the same."""
    differing = []
    for fact, word in (("device", "GPU"), ("hosts", "nodes")):
        was = base.facts.get(fact)
        now = new.facts.get(fact)
        if was and now and was != now:
            differing.append(f"another {word}: {was} in the base, {now} now; not like with like")
    if base.ranks and new.ranks and len(base.ranks) != len(new.ranks):
        many = f"{len(base.ranks)} in the base, {len(new.ranks)} now"
        differing.append(f"another number of ranks: {many}; not like with like")
    return differing


def _left_out(side: RecordedBaseline, word: str) -> list[str]:
    """Return which steps took far longer or shorter than the others, and are left out."""
    return [
        f"step {number} of the {word} took {format_duration(round(took))}, the others "
        f"{format_duration(round(usual))}: left out"
        for number, took, usual in side.outlying
    ]


def _build_answer(
    rows: Sequence[pa.Table],
    what: str,
    base: RecordedBaseline,
    new: RecordedBaseline,
    notes: list[str],
) -> pa.Table:
    table = pa.concat_tables(rows) if rows else RETURNS.empty_table()
    notes = [*notes, *_left_out(base, "base"), *_left_out(new, "new recording")]
    told_too = {"unlike": _unlike_sides(base, new), "notes": notes}
    facts = facts_of(base, "base") | facts_of(new, "new") | {k: v for k, v in told_too.items() if v}
    return with_coverage(table, compared=what, **facts)


def _by_step(kind: By, base: RecordedBaseline, new: RecordedBaseline) -> _Rows:
    was = base.kinds.get(kind, {})
    now = new.kinds.get(kind, {})
    names = list({**was, **now})
    pairs = [(was.get(n, base.nothing()), now.get(n, new.nothing())) for n in names]
    often = np.array([[s.often for s in pair] for pair in pairs]).reshape(len(names), 2)
    mean = np.array([[s.mean for s in pair] for pair in pairs]).reshape(len(names), 2)
    noise = _estimate_noise(pairs, mean, base, new, kind)
    return _Rows(names, often[:, 0], often[:, 1], mean[:, 0], mean[:, 1], noise)


def _estimate_noise(
    pairs: list[tuple[Series, Series]],
    mean: Floats,
    base: RecordedBaseline,
    new: RecordedBaseline,
    kind: By,
) -> Floats:
    """Return what chance explains, at the level that each thing of a kind has."""
    if min(base.steps, new.steps) < 2 or not pairs:
        return np.full(len(pairs), np.nan)
    chance = Chance(base, new, kind, None)
    compute = compute_of(base, new) if kind == "time" else None
    level = FALSE_ALARMS / len(pairs)
    spreads = [
        surer_by_compute(chance, pair, compute, level)
        if compute and pair[0] is base.kinds[kind].get("total")
        else chance.compute_spread(*pair)
        for pair in pairs
    ]
    return explained_by_chance(mean[:, 1] - mean[:, 0], *stack_spreads(spreads), FALSE_ALARMS)


def _without_steps(kind: By, base: Side, new: Side) -> _Rows:
    """Compare the time of a call, or that in a second recorded."""
    items = [READERS[kind](side) for side in (base, new)]
    names = list(dict.fromkeys(items[0].names + items[1].names))
    code_of = {name: k for k, name in enumerate(names)}
    sums = [_in_a_second(i, code_of, s) for i, s in zip(items, (base, new), strict=True)]
    (was_often, was), (now_often, now) = sums
    noise = np.full(len(names), np.nan)
    if kind == "time":  # parts of that second, which is there once
        was_often = (was_often > 0).astype(np.float64)
        now_often = (now_often > 0).astype(np.float64)
    if kind not in _OF_CALLS:
        return _Rows(names, was_often, now_often, was, now, noise)
    was, now = (np.divide(t, n, out=np.zeros(len(n)), where=n > 0) for n, t in sums)
    return _Rows(names, was_often, now_often, was, now, noise, np.maximum(was_often, now_often))


def _in_a_second(items: Items, code_of: dict[str, int], side: Side) -> tuple[Floats, Floats]:
    """Return the count and time (ns) of each name in a second recorded."""
    code = np.array([*(code_of[name] for name in items.names), -1], np.int64)[items.code]
    kept = code >= 0
    count = np.bincount(code[kept], minlength=len(code_of))
    total = np.bincount(code[kept], items.time[kept], minlength=len(code_of))
    seconds = max(side.recorded_ns, 1) / _NS_PER_S
    return count / seconds, total / seconds


def _build_change_table(kind: By, rows: _Rows, n: int) -> pa.Table:
    present = np.flatnonzero((rows.was_often > 0) | (rows.now_often > 0))
    change = np.abs(rows.now - rows.was)
    certain = change > rows.noise  # never where that is unknown
    impact = change * rows.weight
    order = order_by(~certain[present], -impact[present])
    shown = present[order][: n or None]
    listed = [_build_change_row(kind, rows, bool(certain[k]), k) for k in shown.tolist()]
    return pa.Table.from_pylist(listed, schema=RETURNS)


def _build_change_row(kind: By, rows: _Rows, certain: bool, k: int) -> dict[str, object]:
    was = rows.was[k]
    diff = rows.now[k] - rows.was[k]
    noise = rows.noise[k]
    row = {
        "by": kind,
        "name": rows.names[k],
        "change": _name_change(rows, certain, k),
        "base_count": rows.was_often[k],
        "new_count": rows.now_often[k],
        "base_ns": was,
        "new_ns": rows.now[k],
        "diff_ns": diff,
        "diff_pct": 100 * diff / was if was > 0 else None,
    }
    return row if np.isnan(noise) else row | {"noise_ns": noise, "significant": certain}


def _name_change(rows: _Rows, certain: bool, k: int) -> str:
    if not rows.was_often[k]:
        return "added"
    if not rows.now_often[k]:
        return "removed"
    diff = rows.now[k] - rows.was[k]
    if not diff:
        return "same"
    if not certain:
        return "same" if abs(diff) + rows.noise[k] <= _SAME * rows.was[k] else "unclear"
    return "slower" if diff > 0 else "faster"


DIFF = Label("diff", "What changed between two recordings, or two ranks?")
