"""What changed in the work itself: GPUs, kernels, links, loading, allocation, the program.

Each rank is compared with itself. What chance explains is told by how steps differ within a rank,
beside the difference between two runs that no step shows; ranks that change unlike are no noise:
they are what is looked for. Waiting is no change of work, it is an effect: see `parts`.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from htk.base.columns.groups import weighted_median
from htk.base.columns.types import Floats, Ints, Mask
from htk.quantities.measures.chance import explained_by_chance
from htk.traces.compare.significance import HOST_RUN_NOISE_PCT, RUN_NOISE_PCT
from htk.verdicts.comparison.recorded_work import RecordedWork, TransferKind

Kind = Literal["gpu", "kernel", "links", "loader", "allocator", "program"]
ALL = ""
MORE_NS = "more"
SHARE = "share"
FALSE_ALARMS = 0.01  # chance that equal runs show one cause of a kind
_RUN = RUN_NOISE_PCT / 100
_HOST_RUN = HOST_RUN_NOISE_PCT / 100
_LINK_RUN = 0.015  # compute beside a transfer slows it, more or less
_KAPPA_SIGMA = 0.2  # of κ: how well it is has_error
_LEAST_KERNEL = 5e-4  # of a rank's kernels: smaller ones are left out
_LEAST_HOST = 0.003  # of the step: shorter loading or allocation matters to nobody
_MOST_OF_ALL = 0.9  # of the ranks: then all
_LARGE = 0.02  # of a rank's kernels: a family that tells of the GPU
_FAMILY_SPREAD = 0.005  # families of one GPU may differ so
_LIKE = 0.25  # of a kernel's change: others of its family changed alike
_NEAR = 0.5  # of the largest change: ranks that changed by as much changed together


@dataclass(frozen=True)
class ChangeCause:
    """One thing that changed, on which ranks, by how much, and its part of the step's change."""

    kind: Kind
    ranks: tuple[int, ...]
    change: float  # of the work itself, relative; of loading and allocation ns of a step
    error: float  # of that: one standard deviation
    name: str = ""  # of the kernel, or the collectives
    # On each rank: by kernel (ALL: of all) the ratio; of loading and allocation the ns more of a
    # step, and the share of them that these are.
    by_rank: dict[str, Floats] = field(default_factory=dict, compare=False, repr=False)
    keys: dict[TransferKind, float] = field(default_factory=dict, compare=False, repr=False)
    recorded_ns: float = 0.0  # more of a step on the rank that has most
    part_ns: float = 0.0  # of the step's change; in recorded time where nothing was replayed
    is_replayed: bool = False

    @property
    def noise_ns(self) -> float | None:
        """What chance explains of its part: two standard deviations, as of the work itself."""
        return 2 * abs(self.part_ns * self.error / self.change) if self.change else None


@dataclass(frozen=True)
class Ratios:
    """Logarithms of new over base, by name and rank, and how sure each is."""

    names: list[str]
    families: list[str]
    weight: Floats  # time in a step, by name and rank
    value: Floats
    step_variance: Floats  # of a mean over steps, by name; of each rank
    bias: Floats  # what a wrong κ would make of it, by name and rank


def changed_work(base: RecordedWork, new: RecordedWork, kappa: float) -> list[ChangeCause]:
    """Return what changed by more than chance explains, in no order."""
    ratios, program = _compute_ratios(base, new, kappa)
    gpus, by_rank = _blame_gpus(base, new, ratios)
    step = float(np.median(base.step_ns))
    return [
        *gpus,
        *_blame_kernels(new, ratios, by_rank),
        *_blame_links(base, new),
        *_blame_host("loader", base, new, base.loading_ns, new.loading_ns, step),
        *_blame_host("allocator", base, new, base.allocation_ns, new.allocation_ns, step),
        *program,
    ]


def _compute_ratios(
    base: RecordedWork, new: RecordedWork, kappa: float
) -> tuple[Ratios, list[ChangeCause]]:
    """Return the ratios of kernels that run as often on both sides, and the change of program."""
    row_of_name = {name: k for k, name in enumerate(base.names)}
    both = [(row_of_name[n], k) for k, n in enumerate(new.names) if n in row_of_name]
    was, now = (np.array(rows, np.int64) for rows in zip(*both, strict=True)) if both else (
        np.zeros(0, np.int64), np.zeros(0, np.int64))  # fmt: skip
    often = base.count[was].mean(axis=2), new.count[now].mean(axis=2)
    alike = np.isclose(*often, rtol=0.02).all(axis=1) & (often[0] > 0).all(axis=1)
    program = _blame_program(base, new, was[alike], now[alike])
    was = was[alike]
    now = now[alike]
    before = base.alone_ns(kappa)[was]
    after = new.alone_ns(kappa)[now]
    weight = before.mean(axis=2)
    kept = (weight > _LEAST_KERNEL * weight.sum(axis=0)).any(axis=1) & (before > 0).all(axis=(1, 2))
    kept &= (after > 0).all(axis=(1, 2))
    was = was[kept]
    now = now[kept]
    before = before[kept]
    after = after[kept]
    weight = weight[kept]
    value = np.log(after.mean(axis=2)) - np.log(weight)
    variance = _of_means(np.log(before)) + _of_means(np.log(after))
    moved = _share_beside(new, now) - _share_beside(base, was)
    names = [base.names[k] for k in was.tolist()]
    families = [base.families[k] for k in was.tolist()]
    bias = _KAPPA_SIGMA * kappa * np.abs(moved)
    return Ratios(names, families, weight, value, variance, bias), program


def _share_beside(work: RecordedWork, rows: Ints) -> Floats:
    recorded = work.recorded_ns[rows].sum(axis=2)
    return np.asarray(work.beside_ns[rows].sum(axis=2) / np.maximum(recorded, 1))


def _each_mean(values: Floats) -> Floats:
    """Return the variance of the mean over steps, the last axis."""
    steps = values.shape[-1]
    if steps < 2:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.var(axis=-1, ddof=1) / steps)


def _of_means(values: Floats) -> Floats:
    """Return that of a rank's mean, as all ranks tell it."""
    return np.asarray(_each_mean(values).mean(axis=-1))


def _blame_program(
    base: RecordedWork, new: RecordedWork, was: Ints, now: Ints
) -> list[ChangeCause]:
    """Return what kernels cost that run more or less often than before, or are new or gone."""
    before = base.compute_ns - base.recorded_ns[was].sum(axis=0)
    after = new.compute_ns - new.recorded_ns[now].sum(axis=0)
    was_ns = before.mean(axis=1)
    now_ns = after.mean(axis=1)
    more = now_ns - was_ns
    matters = np.abs(more) > 0.005 * base.compute_ns.mean(axis=1)
    if not matters.any():
        return []
    same = set(now.tolist())
    names = tuple(n for k, n in enumerate(new.names) if k not in same)
    ratio = np.divide(was_ns, now_ns, out=np.ones(len(more)), where=now_ns > 0)
    return [
        ChangeCause(
            "program", tuple(new.ranks[matters].tolist()), _take_largest(more), 0.0,
            by_rank=dict.fromkeys(names, 1 / np.maximum(ratio, 1e-9)),
            recorded_ns=_take_largest(more),
        )
    ]  # fmt: skip


def _blame_gpus(
    base: RecordedWork, new: RecordedWork, ratios: Ratios
) -> tuple[list[ChangeCause], Floats]:
    """Return GPUs that run their kernels slower or faster, and the ratio of each rank's."""
    ranks = len(new.ranks)
    none = np.zeros(ranks)
    if not ratios.names:
        return [], none
    factor = np.array([_common_ratio(ratios, r) for r in range(ranks)])
    total = _of_means(np.log(base.compute_ns)) + _of_means(np.log(new.compute_ns))
    share = ratios.weight / ratios.weight.sum(axis=0)
    bias = (share * ratios.bias).sum(axis=0)
    error = np.sqrt(1.6 * total + 2 * _RUN**2 + bias**2)
    free = ranks * (base.step_ns.shape[1] + new.step_ns.shape[1] - 2)
    # What all ranks have in common is surer than what each shows.
    common = float(factor.mean())
    error_of_common = math.sqrt(1.6 * float(total) / ranks + 2 * _RUN**2 + float(bias.mean()) ** 2)
    *sure, is_common = _beyond_chance(
        np.append(factor, common), np.append(error, error_of_common), free
    )
    is_near = np.abs(factor - common) <= _NEAR * abs(common)
    chosen_all = is_common and is_near.mean() >= _MOST_OF_ALL
    by_rank = np.where(np.array(sure) | chosen_all, factor, 0.0)
    causes = []
    for chosen in _group_alike(by_rank):
        change = float(np.mean(factor[chosen]))
        more = (np.expm1(factor) * ratios.weight.sum(axis=0))[chosen]
        causes.append(
            ChangeCause(
                "gpu", tuple(new.ranks[chosen].tolist()), float(np.expm1(change)),
                float(error[chosen].mean()), by_rank={ALL: np.exp(np.where(chosen, by_rank, 0.0))},
                recorded_ns=_take_largest(more),
            )
        )  # fmt: skip
    return causes, by_rank


def _blame_kernels(new: RecordedWork, ratios: Ratios, by_rank: Floats) -> list[ChangeCause]:
    """Return kernels that take longer or shorter than the rest of their GPU's kernels tell."""
    if not ratios.names:
        return []
    ranks = len(new.ranks)
    rest = ratios.value - by_rank
    error = np.sqrt(ratios.step_variance[:, None] + _RUN**2 + ratios.bias**2)
    free = max(ranks * (new.step_ns.shape[1] - 1), 1)
    sure = _beyond_chance(rest.ravel(), error.ravel(), free).reshape(rest.shape)
    together = rest.mean(axis=1)
    error_together = np.sqrt(ratios.step_variance / ranks + _RUN**2 + ratios.bias.mean(axis=1) ** 2)
    sure_together = _beyond_chance(together, error_together, free)
    causes: list[ChangeCause] = []
    for k in np.flatnonzero(sure.any(axis=1) | sure_together).tolist():
        most = float(np.abs(rest[k]).max())
        chosen = np.abs(rest[k]) >= _NEAR * most
        if sure_together[k] and chosen.mean() < _MOST_OF_ALL:
            chosen &= sure[k] | (np.abs(rest[k]) > 3 * error[k])
        if sure_together[k] and chosen.mean() >= _MOST_OF_ALL:
            chosen[:] = True
        chosen = chosen if chosen.any() else np.ones(ranks, bool)
        more = (np.expm1(rest[k]) * ratios.weight[k] * np.exp(by_rank))[chosen]
        causes.append(
            ChangeCause(
                "kernel", tuple(new.ranks[chosen].tolist()),
                float(np.expm1(rest[k][chosen].mean())), float(error[k].mean()), ratios.names[k],
                {ratios.names[k]: np.exp(np.where(chosen, rest[k], 0.0))},
                recorded_ns=_take_largest(more),
            )
        )  # fmt: skip
    return _by_family(causes, ratios)


def _by_family(causes: list[ChangeCause], ratios: Ratios) -> list[ChangeCause]:
    """Return the causes with kernels of a family that changed alike as one."""
    family = dict(zip(ratios.names, ratios.families, strict=True))
    weight = dict(zip(ratios.names, ratios.weight.sum(axis=1).tolist(), strict=True))
    together: list[ChangeCause] = []
    for cause in sorted(causes, key=lambda c: -weight[c.name]):
        for k, other in enumerate(together):
            alike = family[cause.name] == family[other.name] and cause.ranks == other.ranks
            if alike and abs(cause.change - other.change) <= _LIKE * abs(other.change):
                together[k] = replace(
                    other,
                    by_rank=other.by_rank | cause.by_rank,
                    recorded_ns=other.recorded_ns + cause.recorded_ns,
                )
                break
        else:
            together.append(cause)
    return together


def _blame_links(base: RecordedWork, new: RecordedWork) -> list[ChangeCause]:
    """Return the collectives that transfer for longer, or less long, as one cause."""
    keys = [key for key in new.transfers if key in base.transfers]
    if not keys:
        return []
    before = np.log([base.transfers[key] for key in keys])
    after = np.log([new.transfers[key] for key in keys])
    value = after.mean(axis=1) - before.mean(axis=1)
    variance = _each_mean(before) + _each_mean(after)
    usual = float(np.median(variance))
    error = np.sqrt(np.maximum(variance, usual) + 2 * _LINK_RUN**2)
    free = before.shape[1] + after.shape[1] - 2
    sure = _beyond_chance(value, error, max(free, 1))
    if not sure.any():
        return []
    changed = {keys[k]: float(np.exp(value[k])) for k in np.flatnonzero(sure).tolist()}
    members = {rank for *_, ranks in changed for rank in ranks}
    ranks = tuple(r for r in new.ranks.tolist() if r in members or not members)
    largest = int(np.argmax(np.where(sure, np.abs(value), 0)))
    more = np.exp(after.mean(axis=1)) - np.exp(before.mean(axis=1))
    name = str(keys[largest][0])
    return [
        ChangeCause(
            "links", ranks, float(np.expm1(value[largest])), float(error[largest]), name,
            keys=changed, recorded_ns=float(more[sure].sum()),
        )
    ]  # fmt: skip


def _take_largest(values: Floats) -> float:
    return float(values[np.argmax(np.abs(values))])


def _blame_host(
    kind: Kind, base: RecordedWork, new: RecordedWork, before: Floats, after: Floats, step: float
) -> list[ChangeCause]:
    """Return ranks whose host loads data, or allocates, for longer or less long."""
    more = np.median(after, axis=1) - np.median(before, axis=1)
    size = np.maximum(np.median(before, axis=1), np.median(after, axis=1))
    variance = _each_mean(before) + _each_mean(after)
    usual = float(np.median(variance))
    error = np.sqrt(np.maximum(variance, usual) + 2 * (_HOST_RUN * size) ** 2)
    free = before.shape[1] + after.shape[1] - 2
    sure = _beyond_chance(more, error, max(free, 1)) & (np.abs(more) > _LEAST_HOST * step)
    changed = np.where(sure, more, 0.0)
    return [
        ChangeCause(
            kind, tuple(new.ranks[chosen].tolist()), float(np.median(more[chosen])),
            float(error[chosen].mean()), by_rank={
                MORE_NS: np.where(chosen, changed, 0.0),
                SHARE: np.where(chosen & (changed > 0), changed / np.maximum(size, 1), 0.0),
            },
            recorded_ns=_take_largest(more[chosen]),
        )
        for chosen in _group_alike(changed)
    ]  # fmt: skip


def _beyond_chance(value: Floats, error: Floats, free: int) -> Mask:
    """Return which values chance does not explain; the chance of a false alarm is shared."""
    has_error = ~np.isnan(error)
    if not has_error.all() or not len(value):
        return np.zeros(len(value), bool)
    degrees = np.full(len(value), float(max(free, 1)))
    return np.asarray(np.abs(value) > explained_by_chance(value, error, degrees, FALSE_ALARMS))


def _group_alike(change: Floats) -> list[Mask]:
    """Return the sets of ranks that changed together: all of them, or those of a like change."""
    sets = []
    left = change != 0
    while left.any():
        largest = float(change[np.argmax(np.where(left, np.abs(change), 0))])
        chosen = left & (np.sign(change) == np.sign(largest))
        chosen &= np.abs(change - largest) <= _NEAR * abs(largest)
        if chosen.mean() >= _MOST_OF_ALL:
            chosen = np.asarray(change != 0)
        sets.append(chosen)
        left = left & ~chosen
    return sets


def _common_ratio(ratios: Ratios, rank: int) -> float:
    """Return the ratio that all families of a rank's kernels have in common, the least of theirs.

    A GPU that is slower takes longer for all; where only products do, it is they that changed.
    """
    value = ratios.value[:, rank]
    weight = ratios.weight[:, rank]
    families = np.array(ratios.families)
    of_family = [families == family for family in dict.fromkeys(ratios.families)]
    large = [rows for rows in of_family if weight[rows].sum() >= _LARGE * weight.sum()]
    each = np.array([weighted_median(value[rows], np.sqrt(weight[rows])) for rows in large])
    variance = ratios.step_variance
    error = [math.sqrt(np.average(variance[rows], weights=weight[rows])) for rows in large]
    middle = weighted_median(value, np.sqrt(weight))
    apart = np.abs(each - middle) - 2 * np.array(error)
    if (apart <= _FAMILY_SPREAD + 0.25 * abs(middle)).all():
        return middle
    if len(np.unique(np.sign(each))) > 1:
        return 0.0
    return float(min(each, key=abs))
