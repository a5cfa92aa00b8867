"""The answer to a what-if: measured + (replay of the edited − replay of the untouched step)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.analyses.whatif.contention import factor, settled, share
from htk.analyses.whatif.edits import EDITS, edit
from htk.analyses.whatif.scene import CATEGORIES, Scene, scene
from htk.analyses.whatif.shapes import inputs
from htk.errors import UsageError
from htk.gate import Gate, exposed, gated, idle
from htk.graph import Graph
from htk.replay import NEVER, Replay, replay

_Z50, _Z90 = 0.674, 1.645
_SITE = 0.0033  # spread of one system with itself: MLPerf v4.0, Llama-2-70B LoRA
_INDICATIVE = 2.0  # times wider
_LOW_CONFIDENCE = 1.5


@dataclass(frozen=True)
class Stage:
    """What every answer of one trace starts from."""

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

    @property
    def refused(self) -> bool:
        return self.gate.verdict.startswith("refused")


@dataclass(frozen=True)
class Answer:
    edits: tuple[tuple[str, str], ...]
    measured_ns: int
    verdict: str
    step_ns: int | None
    spread: Mapping[str, float]  # of the logarithm of the step time, one sigma, by cause
    exposed_ns: int | None
    idle_ns: int | None
    tokens_per_s: float | None
    samples_ratio: float
    devices_ratio: float
    waterfall: Mapping[str, int]
    assumptions: tuple[str, ...]

    @property
    def sigma(self) -> float:
        return math.sqrt(sum(s * s for s in self.spread.values()))

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
    return Stage(scene(tables, graph), replayed, judged)


def answer(
    start: Stage, edits: Sequence[tuple[str, str]], measured_ns: int | None = None
) -> Answer:
    """Apply the edits in the order of their list, replay, and say how sure that is."""
    known = [e.NAME for e in EDITS]
    for name, _ in edits:
        edit(name)
    ordered = tuple(sorted(edits, key=lambda given: known.index(given[0])))
    measured = start.graph.period_ns if measured_ns is None else measured_ns
    if start.refused:
        return _refused(start, ordered, measured)
    edited = start.scene
    for name, value in ordered:
        edited = edit(name).apply(edited, value)
    edited, after = settled(edited, start.contention, start.beside)
    change = after.period_ns - start.replayed.period_ns
    step = max(measured + round(change * measured / start.graph.period_ns), 1)
    spread = _spread(start, edited, step)
    return Answer(
        edits=ordered,
        measured_ns=measured,
        verdict=_verdict(start, change),
        step_ns=step,
        spread=spread,
        exposed_ns=round(exposed(edited.graph, after.time)),
        idle_ns=round(idle(edited.graph, after.time, after.period_ns)),
        tokens_per_s=_tokens_per_s(start, edited, step),
        samples_ratio=edited.samples,
        devices_ratio=edited.devices,
        waterfall=_waterfall(start, edited, change),
        assumptions=edited.assumptions,
    )


def _refused(start: Stage, ordered: tuple[tuple[str, str], ...], measured: int) -> Answer:
    return Answer(
        ordered, measured, start.gate.verdict, None, {}, None, None, None, 1.0, 1.0, {}, ()
    )


def _verdict(start: Stage, change: int) -> str:
    within = abs(change) <= 2 * start.gate.residual_pct / 100 * start.graph.period_ns
    if within and change:
        return start.gate.verdict + "; the change is indistinguishable from none"
    return start.gate.verdict


def _spread(start: Stage, edited: Scene, step: int) -> dict[str, float]:
    """Each doubt replayed: what if that cause changed by one sigma more than was said?"""
    wide = 1.0 if start.gate.verdict == "trusted" else _INDICATIVE
    wide *= _LOW_CONFIDENCE if edited.low_confidence else 1.0
    found = {"replay": wide * start.gate.residual_pct / 100, "site": _SITE}
    here = replay(edited.graph, edited.weight, edited.wrap_weight).period_ns
    for cause, sigma in edited.spread.items():  # at most one for each category
        if cause not in CATEGORIES:
            found[cause] = wide * sigma
            continue
        mine = edited.categories == CATEGORIES.index(cause)
        kept = mine & (edited.weight > NEVER)
        delta = np.where(kept, edited.weight - start.scene.weight, 0)
        weight = edited.weight + np.rint(delta * sigma).astype(np.int64)
        other = replay(edited.graph, weight, edited.wrap_weight).period_ns
        found[cause] = wide * abs(math.log(max(step + other - here, 1) / step))
    return found


def _waterfall(start: Stage, edited: Scene, change: int) -> dict[str, int]:
    """The change by cause: one after the other, so that they sum to the whole."""
    weight = start.scene.weight
    before, found = start.replayed.period_ns, {}
    for code, cause in enumerate(CATEGORIES):
        mine = edited.categories == code
        if not (edited.weight[mine] != start.scene.weight[mine]).any():
            continue
        weight = np.where(mine, edited.weight, weight)
        now = replay(edited.graph, weight, start.scene.wrap_weight).period_ns
        found[cause] = now - before
        before = now
    rest = change - sum(found.values())
    if rest:
        found["host"] = found.get("host", 0) + rest  # from step to step
    return found


def _tokens_per_s(start: Stage, edited: Scene, step: int) -> float | None:
    tokens = inputs(start.scene).tokens
    if tokens is None:
        return None
    ranks = max(int(start.scene.facts.group_size.max(initial=1)), len(start.graph.ranks))
    return tokens * ranks * edited.samples / (step / 1e9)


def swept(
    start: Stage,
    fixed: Sequence[tuple[str, str]],
    over: Sequence[tuple[str, Sequence[str]]],
    measured_ns: int | None = None,
) -> list[Answer]:
    """Every combination of the values of one or more edits."""
    combinations: list[tuple[tuple[str, str], ...]] = [tuple(fixed)]
    for name, values in over:
        combinations = [(*c, (name, value)) for c in combinations for value in values]
    answers = []
    for combination in combinations:  # some tens
        try:
            answers.append(answer(start, combination, measured_ns))
        except UsageError as error:
            if len(combinations) == 1:
                raise
            none = replace(_refused(start, combination, start.graph.period_ns))
            answers.append(replace(none, verdict=f"refused: {error}"))
    return answers


BOUNDS = (
    ("no_skew", "on"),
    ("overlap", "perfect"),
    ("remove_syncs", "on"),
    ("graphs", "on"),
    ("host", "2x"),
)


def bounds(start: Stage, measured_ns: int | None = None) -> list[Answer]:
    """What could be won at most, each alone, most first."""
    asked = [*BOUNDS]
    if len(start.graph.ranks) > 1:
        asked.append(("fix_rank", "all"))
    found = [answer(start, [one], measured_ns) for one in asked]
    return sorted(found, key=lambda a: a.step_ns or 0)
