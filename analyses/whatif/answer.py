"""The answer to a what-if: measured + (replay of the edited − replay of the untouched step)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.analyses.whatif.contention import factor, settled, share
from htk.analyses.whatif.edits import EDITS, edit
from htk.analyses.whatif.memory import Held, after, held
from htk.analyses.whatif.rates import Rates, rates
from htk.analyses.whatif.scene import CATEGORIES, Scene, scene
from htk.gate import Gate, exposed, gated, idle
from htk.graph import Graph
from htk.replay import NEVER, Replay, replay

_Z50, _Z90 = 0.674, 1.645
_SITE = 0.0033  # spread of one system with itself: MLPerf v4.0, Llama-2-70B LoRA
_INDICATIVE = 2.0  # times wider
_LOW_CONFIDENCE = 1.5
_SLOWER_HOST = 0.1  # tried, to see whether the step follows
_LAUNCH_BOUND = 0.5  # of that followed: the host is the slower side
_MATRIX = ("gemm", "attention", "convolution")

# Where a doubt comes from, by the cause that an edit names.
SOURCES = {
    "replay": "replay",
    "structure": "replay",
    "compute": "kernel",
    "memory": "kernel",
    "host": "kernel",
    "dependencies": "replay",
    "communication": "network",
    "skew": "skew",
    "site": "site",
}


@dataclass(frozen=True)
class Stage:
    """What every answer of one trace starts from."""

    tables: Mapping[str, pa.Table]
    scene: Scene
    replayed: Replay
    gate: Gate

    @property
    def graph(self) -> Graph:
        return self.scene.graph

    @cached_property
    def contention(self) -> float:
        """How much slower compute is beside communication."""
        return factor(self.scene)

    @cached_property
    def beside(self) -> NDArray[np.float64]:
        """Share of each kernel's time with communication beside it."""
        return share(self.scene, self.replayed.time)

    @cached_property
    def memory(self) -> Held | None:
        return held(self.tables, self.scene)

    @cached_property
    def rates(self) -> Rates:
        return rates(self.tables, self.scene)

    @property
    def refused(self) -> bool:
        return self.gate.verdict.startswith("refused")


@dataclass(frozen=True)
class Answer:
    edits: tuple[tuple[str, str], ...]
    measured_ns: int
    verdict: str
    step_ns: int | None = None
    spread: Mapping[str, float] = field(default_factory=dict)  # of log step, one sigma, by cause
    exposed_ns: int | None = None
    idle_ns: int | None = None
    tokens_per_s: float | None = None
    mfu_pct: float | None = None
    peak_memory: int | None = None
    p_oom: float | None = None
    gpus: float = 1.0
    samples_ratio: float = 1.0
    devices_ratio: float = 1.0
    launch_bound: bool = False
    under_a_wave: bool = False
    waterfall: Mapping[str, int] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    narrow: str = ""
    mark: str = ""

    @property
    def each(self) -> float:
        """Samples of a GPU, over the recorded ones."""
        return self.samples_ratio / self.devices_ratio

    @property
    def sigma(self) -> float:
        return math.sqrt(sum(s * s for s in self.spread.values()))

    @property
    def sources(self) -> dict[str, float]:
        """The doubt by where it comes from."""
        found: dict[str, float] = {}
        for cause, sigma in self.spread.items():
            source = SOURCES.get(cause, "replay")
            found[source] = math.hypot(found.get(source, 0.0), sigma)
        return found

    @property
    def gain_over_doubt(self) -> float | None:
        if self.step_ns is None or not self.sigma:
            return None
        return -math.log(self.step_ns / self.measured_ns / self.each) / self.sigma

    def band(self, z: float) -> tuple[int | None, int | None]:
        if self.step_ns is None:
            return None, None
        wide = math.exp(z * self.sigma)
        return round(self.step_ns / wide), round(self.step_ns * wide)

    @property
    def bands(self) -> tuple[int | None, int | None, int | None, int | None]:
        """lo50, hi50, lo90, hi90."""
        return (*self.band(_Z50), *self.band(_Z90))


def stage(tables: Mapping[str, pa.Table]) -> Stage:
    graph, replayed, judged = gated(tables)
    return Stage(tables, scene(tables, graph), replayed, judged)


def ordered(edits: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """In the order in which they are applied."""
    known = [e.NAME for e in EDITS]
    for name, _ in edits:
        edit(name)
    return tuple(sorted(edits, key=lambda given: known.index(given[0])))


def answer(
    start: Stage, edits: Sequence[tuple[str, str]], measured_ns: int | None = None
) -> Answer:
    """Apply the edits in the order of their list, replay, and say how sure that is."""
    asked = ordered(edits)
    measured = start.graph.period_ns if measured_ns is None else measured_ns
    if start.refused:
        return refused(start, asked, measured)
    edited = start.scene
    for name, value in asked:
        edited = edit(name).apply(edited, value)
    edited, found = settled(edited, start.contention, start.beside)
    change = found.period_ns - start.replayed.period_ns
    step = max(measured + round(change * measured / start.graph.period_ns), 1)
    spread = _spread(start, edited, step, found.period_ns)
    each = edited.samples / edited.devices
    peak, p_oom = (None, None) if start.memory is None else after(start.memory, asked, edited.kept)
    return Answer(
        edits=asked,
        measured_ns=measured,
        verdict=_verdict(start, change),
        step_ns=step,
        spread=spread,
        exposed_ns=round(exposed(edited.graph, found.time)),
        idle_ns=round(idle(edited.graph, found.time, found.period_ns)),
        tokens_per_s=start.rates.tokens_per_s(edited.samples, step),
        mfu_pct=start.rates.mfu_pct(each, step),
        peak_memory=peak,
        p_oom=p_oom,
        gpus=start.rates.gpus * edited.devices,
        samples_ratio=edited.samples,
        devices_ratio=edited.devices,
        launch_bound=_launch_bound(edited, found.period_ns),
        under_a_wave=_under_a_wave(edited, each),
        waterfall=_waterfall(start, edited, change, measured / start.graph.period_ns),
        assumptions=edited.assumptions,
        narrow=_narrow(start, asked, spread),
    )


def refused(start: Stage, asked: tuple[tuple[str, str], ...], measured: int) -> Answer:
    return Answer(asked, measured, start.gate.verdict)


def _verdict(start: Stage, change: int) -> str:
    within = abs(change) <= 2 * start.gate.residual_pct / 100 * start.graph.period_ns
    if within and change:
        return start.gate.verdict + "; the change is indistinguishable from none"
    return start.gate.verdict


def _spread(start: Stage, edited: Scene, step: int, here: int) -> dict[str, float]:
    """Each doubt replayed: what if that cause changed by one sigma more than was said?"""
    wide = 1.0 if start.gate.verdict == "trusted" else _INDICATIVE
    wide *= _LOW_CONFIDENCE if edited.low_confidence else 1.0
    found = {"replay": wide * start.gate.residual_pct / 100, "site": _SITE}
    scale = step / here
    for cause, sigma in edited.spread.items():  # at most one for each category
        if cause not in CATEGORIES:
            found[cause] = wide * sigma
            continue
        mine = edited.categories == CATEGORIES.index(cause)
        kept = mine & (edited.weight > NEVER)
        delta = np.where(kept, edited.weight - edited.graph.weight, 0)
        weight = edited.weight + np.rint(delta * sigma).astype(np.int64)
        other = replay(edited.graph, weight, edited.wrap_weight).period_ns
        moved = round((other - here) * scale)
        found[cause] = wide * abs(math.log(max(step + moved, 1) / step))
    return found


def _launch_bound(edited: Scene, here: int) -> bool:
    """Does the step get longer when the host is slower?"""
    on_cpu = edited.graph.edges("call", "think", "handover") & (edited.weight > 0)
    slower = edited.weight + np.where(on_cpu, np.rint(edited.weight * _SLOWER_HOST), 0).astype(
        np.int64
    )
    wraps = edited.wrap_weight.copy()
    between = np.isin(edited.graph.wrap_dst, edited.graph.call_start)
    wraps[between] = np.rint(wraps[between] * (1 + _SLOWER_HOST))
    moved = replay(edited.graph, slower, wraps).period_ns - here
    return moved > _LAUNCH_BOUND * _SLOWER_HOST * here


def _under_a_wave(edited: Scene, each: float) -> bool:
    """Is most time of matrix products in ones that do not fill the GPU once?"""
    matrix = np.array([f in _MATRIX for f in edited.facts.family], bool)
    known = matrix & ~np.isnan(edited.facts.blocks)
    if not known.any():
        return False
    length = edited.lengths()[known]
    few = edited.facts.blocks[known] * each < 1
    return bool(length[few].sum() > 0.5 * length.sum())


def _waterfall(start: Stage, edited: Scene, change: int, scale: float) -> dict[str, int]:
    """The change by cause, which sums to the whole."""
    found = _by_substitution(start, edited)
    for cause, ns in edited.added.items():
        found[cause] = found.get(cause, 0) + ns
    rest = change - sum(found.values())
    if rest:
        found["host"] = found.get("host", 0) + rest  # from step to step
    scaled = {cause: round(ns * scale) for cause, ns in found.items()}
    left = round(change * scale) - sum(scaled.values())
    if left:  # of rounding
        largest = max(scaled, key=lambda cause: abs(scaled[cause]))
        scaled[largest] += left
    return {cause: ns for cause, ns in scaled.items() if ns}


def _by_substitution(start: Stage, edited: Scene) -> dict[str, int]:
    """One cause after the other takes its new lengths; the graph's own are the untouched ones."""
    weight = edited.graph.weight
    before, found = start.replayed.period_ns, {}
    for code, cause in enumerate(CATEGORIES):
        mine = edited.categories == code
        if not (edited.weight[mine] != edited.graph.weight[mine]).any():
            continue
        weight = np.where(mine, edited.weight, weight)
        now = replay(edited.graph, weight).period_ns
        found[cause] = now - before
        before = now
    return found


def _narrow(start: Stage, asked: Sequence[tuple[str, str]], spread: Mapping[str, float]) -> str:
    """The recording that would take away the largest part of the doubt."""
    if not asked or not spread:
        return ""
    sources: dict[str, float] = {}
    for cause, sigma in spread.items():
        source = SOURCES.get(cause, "replay")
        sources[source] = math.hypot(sources.get(source, 0.0), sigma)
    whole = math.sqrt(sum(s * s for s in sources.values()))
    most = max(sources, key=lambda source: sources[source])
    rest = math.sqrt(max(whole * whole - sources[most] ** 2, 0.0))
    gain = f"(doubt {100 * whole:.1f} % to about {100 * max(rest, whole / 3):.1f} %)"
    return f"{_RECORDINGS[most].format(**_asked(start, asked))} {gain}"


_RECORDINGS = {
    "replay": "record three or more whole steps with event synchronisation enabled",
    "kernel": "record one more run {other}, and give both",
    "network": "record one more run {other}, or measure its collectives with nccl-tests",
    "skew": "record every rank of the job",
    "site": "repeat the recording; the rest is how much the same job varies from run to run",
}


def _asked(start: Stage, asked: Sequence[tuple[str, str]]) -> dict[str, str]:
    values = dict(asked)
    if "batch" in values:
        return {"other": f"at batch {values['batch']}"}
    name, value = asked[0]
    return {"other": f"with {name} {value}, if only on few steps"}
