"""What the scorecard of plans found: a page of the documentation, and the table that plans use."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from bench.plans.rows import Measured
from bench.plans.score import UNCHECKED, Miss, SourceScore, TraitVariances, rankings
from htk.planning.plan.step import plan

_HEAD = """# How well plans hold

`htk plan` held against {n} published steps of {sources} sources. Written by
`python -m bench.plans --facts FOLDER --write`; the rows are not part of the project.

Products, attention and experts take what [measured kernels](kernels.md) do, which were measured
for serving and by nobody listed here. The constants beside them (by how much a step's kernels are
slower than the same ones alone, and a framework's than a library's; bytes, gaps) were chosen on
all sources but NVIDIA's tables, which no constant was fitted to. What is counted at all is
another matter: that DeepSeek-V3 is trained with a module that predicts a further token, that an
engine takes the fastest library's experts, and that libraries overlap tensor parallelism better
than frameworks, was added after NVIDIA's rows had been seen. So their error is a little
flattered.

How far plans may miss was learned, for each source, from the other sources alone; so was how wide
its intervals are. *Held* says how often they did, for a source that taught nothing. Intervals hold
nine times of ten on average over sources, not in each: a source whose software is slower than
others' is missed in one direction, as Aleph Alpha's is. A trait that a single source had counts for
no less than 15 %. Peak memory is held to other rows: see the [scorecard](scorecard.md#memory).

- *± %*: half of the 90 % interval upwards, at the median, of a source that taught nothing. Plans
  use a table that all sources taught.
- *40 % MFU*: the median error of who says that every job reaches 40 % of the 16-bit peak.
- *anchored*: the median error of *measured × plan(after) ÷ plan(before)*, between jobs of one
  source, model and GPU; where a measured step exists, that is to be beaten.

"""
_COLUMNS = ("source", "rows", "said", "median %", "mean %", "bias %", "50 % held", "90 % held",
            "± %", "40 % MFU", "anchored")  # fmt: skip


def page(rows: Sequence[Measured], missed: Sequence[Miss], scores: Sequence[SourceScore]) -> str:
    sources = len({r.source for r in rows})
    text = _HEAD.format(n=len(missed), sources=sources)
    text += "| " + " | ".join(_COLUMNS) + " |\n| --- |" + " ---: |" * (len(_COLUMNS) - 1) + "\n"
    text += "".join(_line(s) for s in scores)
    return text + _choices(missed) + _memory(missed) + _unsaid(rows) + _by_model(missed)


def _memory(missed: Sequence[Miss]) -> str:
    """How often a job that ran is said to run out of memory."""
    out: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    for miss in missed:
        if miss.row.job is not None:
            ran[miss.source] += 1
            out[miss.source] += plan(miss.row.job).p_oom > 0.5
    lines = [f"- {source}: {out[source]} of {n}\n" for source, n in ran.items() if out[source]]
    return (
        "\n## Said to run out of memory\n\nAll these jobs ran. As many are planned to run out of"
        " memory more likely than not. Who\npublishes takes the largest batch that fits; NVIDIA's"
        " tables do not state what is recomputed or\noffloaded, so nothing of either was planned."
        " The loss of LLM-Foundry's and NVIDIA's jobs was\nplanned as one kernel, which is their"
        " software's default; no row states it."
        "\n\n" + "".join(lines)
    )


def _choices(missed: Sequence[Miss]) -> str:
    """What choosing a layout by its plan would have cost."""
    lines = [
        f"| {r.source} | {r.groups} | {r.layouts} | {r.regret_pct:.1f} | {r.worst_pct:.1f} |"
        f" {r.chance_pct:.1f} |\n"
        for r in rankings(missed)
    ]
    if not lines:
        return ""
    return (
        "\n## Choosing by plan\n\nJobs of one model, GPUs, length and batch that were measured in"
        " several layouts: how much longer than\nthe fastest the one took that is planned fastest,"
        " on average and at worst, and one taken by chance.\nRows that no plan can tell apart, such"
        " as versions of software, are one layout: their median.\n\n"
        "| source | jobs | layouts | regret % | worst % | by chance % |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n" + "".join(lines)
    )


def _line(s: SourceScore) -> str:
    cells = [
        s.name, str(s.rows), str(s.said), f"{s.median_pct:.1f}", f"{s.mean_pct:.1f}",
        f"{s.bias_pct:+.1f}", f"{s.held50_pct:.0f}", f"{s.held90_pct:.0f}", f"{s.width_pct:.0f}",
        f"{s.naive_pct:.1f}", "–" if s.anchored_pct is None else f"{s.anchored_pct:.1f}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |\n"


def _unsaid(rows: Sequence[Measured]) -> str:
    reasons = Counter(
        (r.source, r.reason.split(":")[0].replace("\n", " ")) for r in rows if r.job is None
    )
    if not reasons:
        return ""
    lines = [f"- {source}, {n}: {why}\n" for (source, why), n in sorted(reasons.items())]
    return "\n## What a plan was not told\n\n" + "".join(lines)


def _by_model(missed: Sequence[Miss]) -> str:
    """NVIDIA's rows by GPU and model: where plans miss."""
    groups: dict[tuple[str, str], list[float]] = {}
    for miss in missed:
        job = miss.row.job
        if miss.source == "NVIDIA" and job is not None:
            groups.setdefault((job.gpu.name, job.model.name), []).append(miss.error)
    lines = [
        f"| {gpu} | {model} | {len(errors)} | {100 * math.expm1(median(errors)):+.0f} |\n"
        for (gpu, model), errors in sorted(groups.items())
    ]
    if not lines:
        return ""
    return (
        "\n## NVIDIA's rows by model\n\nThe median of planned over measured step, less one. Dense"
        " models hold. Mixtures\nof experts and state spaces run from 45 % shorter to 20 % longer"
        " in the plan than measured:\nno source beside NVIDIA's has such jobs.\n\n"
        "| GPU | model | rows | planned less measured, % |\n| --- | --- | ---: | ---: |\n"
        + "".join(lines)
    )


def checked(missed: Sequence[Miss], learned: TraitVariances, wide: dict[int, float]) -> str:
    """Return the table that tells how far plans may miss, in TOML."""
    most = max(m.row.job.ranks for m in missed if m.row.job is not None)
    lines = [
        "# How far plans of measured jobs missed, by trait: standard deviations of the step's",
        "# logarithm. Written by `python -m bench.plans --write`.\n",
        f"[base]\nsigma = {learned.base**0.5:.4f}\nunchecked = {UNCHECKED}\ngpus = {most}\n",
    ]
    return "\n".join(lines) + "\n" + traits_table(missed, learned, wide)


def traits_table(missed: Sequence[Miss], learned: TraitVariances, wide: dict[int, float]) -> str:
    """Return what intervals reach, and what each trait adds, in TOML."""
    lines = [
        "[factor] # of an interval, in sigmas",
        *(f"{percent} = {factor:.4f}" for percent, factor in wide.items()),
    ]
    for name, variance in learned.by_trait.items():
        having = [m for m in missed if name in m.traits]
        sources = ", ".join(f'"{s}"' for s in dict.fromkeys(m.source for m in having))
        lines += [
            f'\n[trait."{name}"]\nsigma = {variance**0.5:.4f}',
            f"rows = {len(having)}\nsources = [{sources}]",
        ]
    return "\n".join(lines) + "\n"
