"""How far plans miss, by source and by trait of the job, and how wide intervals are to be."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.plans.rows import Measured
from htk.base.columns.types import Floats
from htk.physics.decoder import model_flops
from htk.planning.plan.certainty import list_plan_traits
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import plan

UNCHECKED = 0.3  # assumed of a trait that no measured job had, of the step's logarithm
# Sources differ by their software and machines by about a tenth: of a trait that one source alone
# had, its rows cannot tell that.
ONE_SOURCE = 0.15
LEAST = 0.06  # no plan is surer than identical systems differ
_USUAL_MFU = 0.4
_ROUNDS = 400


@dataclass(frozen=True)
class Miss:
    """A plan beside what was measured."""

    row: Measured
    error: float  # logarithm of planned over measured
    naive: float  # the same of a step at 40 % of the peak
    traits: tuple[str, ...]

    @property
    def source(self) -> str:
        return self.row.source


@dataclass(frozen=True)
class TraitVariances:
    """What each trait adds to the variance of a step's logarithm."""

    base: float
    by_trait: Mapping[str, float]

    def sigma(self, names: Iterable[str]) -> float:
        added = (self.by_trait.get(name, UNCHECKED**2) for name in names)
        return math.sqrt(self.base + sum(added))


@dataclass(frozen=True)
class SourceScore:
    name: str
    rows: int
    said: int  # of those: that a plan can be told
    median_pct: float
    mean_pct: float
    bias_pct: float
    held50_pct: float
    held90_pct: float
    width_pct: float  # half of the 90 % interval, at the median
    naive_pct: float
    anchored_pct: float | None


def misses(rows: Iterable[Measured]) -> list[Miss]:
    return [_miss(row, row.job) for row in rows if row.job is not None]


def _miss(row: Measured, job: PlannedJob) -> Miss:
    answer = plan(job)
    flops = model_flops(job.model, job.global_batch, job.seq) / job.ranks
    usual = flops / (_USUAL_MFU * job.gpu.half_tflops * 1e3)
    return Miss(
        row,
        math.log(answer.step_ns / row.step_ns),
        math.log(usual / row.step_ns),
        tuple(list_plan_traits(job)),
    )


def trait_variances(missed: Sequence[Miss]) -> TraitVariances:
    """Return variances, none negative, whose sums are nearest to the squared errors; each source
    weighs as much."""
    if not missed:  # the only source was left out
        return TraitVariances(UNCHECKED**2, {})
    names = sorted({name for miss in missed for name in miss.traits})
    counts = _by_source(missed)
    weight = np.array([1 / len(counts[m.source]) for m in missed])
    has = np.array([[1.0, *(float(n in m.traits) for n in names)] for m in missed])
    squared = np.array([min(m.error**2, 1.0) for m in missed])
    variances = np.full(has.shape[1], 0.01)
    for _ in range(_ROUNDS):  # coordinate by coordinate: the optimum of a convex problem
        for k in range(has.shape[1]):
            rest = squared - has @ variances + has[:, k] * variances[k]
            scale = float((weight * has[:, k]).sum())
            variances[k] = max(float((weight * has[:, k] * rest).sum()) / scale, 0.0)
    base = max(float(variances[0]), LEAST**2)
    by_trait = dict(zip(names, variances[1:].tolist(), strict=True))
    for name in names:
        if len({m.source for m in missed if name in m.traits}) == 1:
            by_trait[name] = max(by_trait[name], ONE_SOURCE**2)
    return TraitVariances(base, by_trait)


def factors(missed: Sequence[Miss], full: int = 1) -> dict[int, float]:
    """Return how many sigmas intervals reach: as far as sources missed that were left out, each
    weighing as much that has `full` rows, and less that has fewer."""
    scores, weights = _left_out(missed, full)
    order = np.argsort(scores)
    share = np.cumsum(weights[order]) / weights.sum()
    return {
        percent: float(scores[order][np.searchsorted(share, percent / 100)]) for percent in (50, 90)
    }


def _left_out(missed: Sequence[Miss], full: int) -> tuple[Floats, Floats]:
    scores, weights = [], []
    for source, own in _by_source(missed).items():
        learned = trait_variances([m for m in missed if m.source != source])
        scores += [abs(m.error) / learned.sigma(m.traits) for m in own]
        weights += [min(len(own), full) / len(own)] * len(own)
    return np.array(scores), np.array(weights)


def source_scores(rows: Sequence[Measured], missed: Sequence[Miss]) -> list[SourceScore]:
    """Return each source's errors, and how often intervals held that were learned without it."""
    return [
        _score(name, [r for r in rows if r.source == source], own, others)
        for source in dict.fromkeys(r.source for r in rows)
        for others in [[m for m in missed if m.source != source]]
        for name, own in _parts(source, [m for m in missed if m.source == source])
        if own
    ]


def _parts(source: str, own: list[Miss]) -> list[tuple[str, list[Miss]]]:
    if source != "NVIDIA":
        return [(source, own)]
    hopper = [m for m in own if "hopper GPUs" in m.traits]
    return [
        (source, own),
        ("NVIDIA, Hopper", hopper),
        ("NVIDIA, Blackwell", [m for m in own if "blackwell GPUs" in m.traits]),
    ]


def _score(
    name: str, rows: Sequence[Measured], own: Sequence[Miss], others: Sequence[Miss]
) -> SourceScore:
    learned, wide = trait_variances(others), factors(others)
    errors = np.array([m.error for m in own])
    sigmas = np.array([learned.sigma(m.traits) for m in own])
    off = 100 * np.abs(np.expm1(errors))
    naive = 100 * np.abs(np.expm1([m.naive for m in own]))
    is_part = name != own[0].source
    return SourceScore(
        name,
        len(own) if is_part else len(rows),
        len(own),
        float(np.median(off)),
        float(off.mean()),
        100 * float(np.expm1(np.median(errors))),
        100 * float((np.abs(errors) <= wide[50] * sigmas).mean()),
        100 * float((np.abs(errors) <= wide[90] * sigmas).mean()),
        100 * float(np.expm1(np.median(wide[90] * sigmas))),
        float(np.median(naive)),
        _anchored(own),
    )


def _anchored(own: Sequence[Miss]) -> float | None:
    """Median error of *measured × plan(after) ÷ plan(before)*, from each job of the same model and
    GPU to each other."""
    groups: dict[tuple[object, str], list[float]] = defaultdict(list)
    for miss in own:
        assert miss.row.job is not None
        groups[replace(miss.row.job.model, name=""), miss.row.job.gpu.name].append(miss.error)
    off = [
        abs(math.expm1(a - b))
        for errors in groups.values()
        for i, a in enumerate(errors)
        for j, b in enumerate(errors)
        if i != j
    ]
    return 100 * float(np.median(off)) if off else None


@dataclass(frozen=True)
class Ranking:
    """Jobs of one model, GPU count and batch in several layouts: what choosing by plan costs."""

    source: str
    groups: int
    layouts: int
    regret_pct: float  # the measured step of the layout planned fastest, over the fastest; mean
    worst_pct: float
    chance_pct: float  # the same of a layout taken by chance


_LEAST_LAYOUTS = 4


def rankings(missed: Sequence[Miss]) -> list[Ranking]:
    """Return for each source what it would have cost to run the layout that is planned fastest."""
    by_source: dict[str, dict[object, list[Miss]]] = defaultdict(lambda: defaultdict(list))
    for miss in missed:
        job = miss.row.job
        assert job is not None
        key = (replace(job.model, name=""), job.gpu.name, job.ranks, job.seq, job.global_batch)
        by_source[miss.source][key, job.kernels, job.attention].append(miss)
    answers = []
    for source, groups in by_source.items():
        merged = [_merge_layouts(group) for group in groups.values()]
        large = [layouts for layouts in merged if len(layouts) >= _LEAST_LAYOUTS]
        if large:
            regrets = [_regret(group) for group in large]
            chance = [_chance(group) for group in large]
            answers.append(
                Ranking(
                    source,
                    len(large),
                    sum(map(len, large)),
                    100 * float(np.mean(regrets)),
                    100 * max(regrets),
                    100 * float(np.mean(chance)),
                )
            )
    return answers


def _merge_layouts(group: Sequence[Miss]) -> list[tuple[float, float]]:
    """Return the planned and the measured step of each layout: the median of those that no plan can
    tell apart, such as versions of software."""
    measured: dict[PlannedJob | None, list[float]] = defaultdict(list)
    planned: dict[PlannedJob | None, float] = {}
    for miss in group:
        measured[miss.row.job].append(miss.row.step_ns)
        planned[miss.row.job] = miss.row.step_ns * math.exp(miss.error)
    return [(planned[job], float(np.median(steps))) for job, steps in measured.items()]


def _regret(layouts: Sequence[tuple[float, float]]) -> float:
    _, chosen = min(layouts)
    return chosen / min(measured for _, measured in layouts) - 1


def _chance(layouts: Sequence[tuple[float, float]]) -> float:
    steps = [measured for _, measured in layouts]
    return float(np.mean(steps)) / min(steps) - 1


def _by_source(missed: Iterable[Miss]) -> dict[str, list[Miss]]:
    groups: dict[str, list[Miss]] = defaultdict(list)
    for miss in missed:
        groups[miss.source].append(miss)
    return dict(groups)
