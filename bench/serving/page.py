"""What the scorecard of servers says: a page of the documentation, and a table of its intervals."""

import math
from collections.abc import Iterator, Sequence
from statistics import mean, median

from bench.plans.page import traits_table
from bench.plans.rows import Measured
from bench.plans.score import UNCHECKED, Miss, TraitVariances, factors, trait_variances
from bench.serving.rows import Published
from htk.planning.serving.certainty import list_server_traits

_HEAD = """# How well plans of servers hold

`htk plan-serving` held against {n} published figures of {sources} sources. Written by
`python -m bench.serving --write`; the figures are those of `bench/serving/published.csv`, each with
its page.

Products with weights take what measured kernels of their size do ([kernels](kernels.md)), and
hold the gaps around them; experts and attention of prompts take the fastest library's. The rate
of memory and what lies between kernels are those of [plans of training](plan_scorecard.md); that
a host takes half a millisecond an iteration, and an all-reduce of engines 10 µs, was assumed.
None of it was fitted to these rows. With products at a share of the fastest one, as before, the
median error over all rows was 11.2 % where it is {median:.1f} now, and the mean 16.5 where it is
{mean:.1f}.

*all tokens*: batches that begin and end together. *loaded*: a server that has all requests from the
beginning, and answers as many at once as fit, each of which has its prompt read beside the answers
of others. *iteration*: one, recorded with the profiler. Nothing published was at hand that tells of
requests that arrive at random, of speculation, of pipelines, or of prefill and decode on GPUs of
their own. TensorRT-LLM's tables of mixtures on several GPUs are left out: attention of each GPU's
own requests, as they ran them, cannot be described.

- *bias*: the median of planned over measured time, less one; below zero is planned too fast.
- *held*: how often intervals did that the other sources taught; a source weighs as its rows, up to
  thirty. How many sigmas intervals reach was learned without the rows of 2023 that launched from
  Python (`llm_benchmark`), which no engine of today does; what those missed by widens
  `--kernels eager` alone.

| source | GPU | time | rows | median % | mean % | bias % | 50 % held | 90 % held |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""
_FOOT = """
## Where it misses

- TensorRT-LLM 0.9 read keys and values once for each head of queries, not for each group (its page
  tells of the kernels that share them, not enabled by default): models with grouped-query attention
  answer long contexts in half of what was measured. Engines of today share them.
- Mixtures of many narrow experts (Qwen3-30B on one GPU) were planned 30 to 70 % too fast, as in
  training, but for the longest prompts.
- DeepSeek-V3 in 4 bits by vLLM of early 2025 took up to 1.7 times as long as planned. Engines have
  gained since: [measured servers](measured_servers.md) has those of 2026.
- An iteration of SGLang on MI300X took 10.5 ms, planned 6.1: products ran at 60 % of what memory
  gives, attention at 55 %.
- Mixtures of experts on Hopper in FP8 took up to 2.6 times as long as planned, reading prompts too:
  kernels of 2024 for experts were far from those of today, which are the measured ones.
- A short prompt alone took 1.2 to 1.35 times as long as planned on H100 and H200: the host launched
  its kernels one by one. (Mixtral on A100 took 0.7 times as long.)
- vLLM and FasterTransformer of 2023 (`llm_benchmark`) are planned as `eager`, and still far too
  fast.
- One row cannot be what it says: Mixtral in 16 bits on two A100, 32 requests of 2048 + 2048, would
  read its weights faster than their memory can (20 ms an iteration; at the peak rate 23). It is
  planned 80 % too slow.
"""


_FULL = 30  # rows of a source that weighs as much as any


def misses(rows: Sequence[Published]) -> list[Miss]:
    return [
        Miss(
            Measured(row.source, row.label, None, row.measured_ns, system=row.server.gpu.name),
            row.error,
            0.0,
            tuple(list_server_traits(row.server, row.is_first)),
        )
        for row in rows
    ]


def reach(missed: Sequence[Miss]) -> dict[int, float]:
    """Return how many sigmas intervals reach, by engines whose kernels are launched together."""
    return factors([m for m in missed if "eager kernels" not in m.traits], _FULL)


def page(rows: Sequence[Published], missed: Sequence[Miss]) -> str:
    sources = len({row.source for row in rows})
    off = [100 * abs(math.expm1(miss.error)) for miss in missed]
    return (
        _HEAD.format(n=len(rows), sources=sources, median=median(off), mean=mean(off))
        + "".join(_lines(rows, missed))
        + _FOOT
    )


def _lines(rows: Sequence[Published], missed: Sequence[Miss]) -> Iterator[str]:
    kinds = dict.fromkeys((r.source, r.server.gpu.name, r.kind) for r in rows)
    for source, gpu, kind in kinds:
        others = [m for m in missed if m.source != source]
        learned, wide = trait_variances(others), reach(others)
        own = [
            m for m, r in zip(missed, rows, strict=True)
            if (r.source, r.server.gpu.name, r.kind) == (source, gpu, kind)
        ]  # fmt: skip
        off = [100 * abs(math.expm1(m.error)) for m in own]
        held = [
            100 * mean(abs(m.error) <= wide[percent] * learned.sigma(m.traits) for m in own)
            for percent in (50, 90)
        ]
        yield (
            f"| {source} | {gpu} | {kind} | {len(own)} |"
            f" {median(off):.0f} | {mean(off):.0f} |"
            f" {100 * math.expm1(median(m.error for m in own)):+.0f} |"
            f" {held[0]:.0f} | {held[1]:.0f} |\n"
        )


def checked(missed: Sequence[Miss], learned: TraitVariances, wide: dict[int, float]) -> str:
    """Return the table that tells how far servers may miss, in TOML."""
    return (
        "# How far published servers were missed by, by trait: standard deviations of a time's\n"
        "# logarithm. Written by `python -m bench.serving --write`.\n\n"
        f"[base]\nsigma = {learned.base**0.5:.4f}\nunchecked = {UNCHECKED}\n\n"
        + traits_table(missed, learned, wide)
    )
