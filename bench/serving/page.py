"""What the scorecard of servers says: a page of the documentation, and a table of its intervals."""

import math
from collections.abc import Iterator, Sequence
from statistics import mean, median

from bench.plans.page import traits_table
from bench.plans.rows import Measured
from bench.plans.score import UNCHECKED, Miss, TraitVariances, factors, trait_variances
from bench.serving.rows import Published
from htk.planning.serving.certainty import traits

_HEAD = """# How well plans of servers hold

`htk plan --serve` held against {n} published figures of {sources} sources. Written by
`python -m bench.serving --write`; the figures are those of `bench/serving/published.csv`, each with
its page.

No constant was fitted to any of them. Rates of memory, of products and of attention, and what a
kernel takes beside its bytes, are those of [plans of training](plan_scorecard.md); that a host
takes half a millisecond an iteration, and an all-reduce of engines 10 µs, was assumed. The rows of
TensorRT-LLM 1.0, those of DeepSeek-V3 and the recorded iteration were looked up when all of it
stood. One thing was changed after: reading and computing hide each other in part (the root of the
sum of their squares, as in [what-ifs](scorecard.md)), where the longer of the two had counted. Over
all rows the median error fell from 12.1 to 11.2 % and the mean from 17.5 to 16.5; of TensorRT-LLM
1.0 on H100, which was planned too slow before, the median rose from 7.1 to 8.3.

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
- Dense models on Blackwell in FP4 were planned up to 30 % too fast: the catalogue holds no measured
  product in FP4.
- Mixtures of many narrow experts (Qwen3-30B on one GPU) were planned 30 to 70 % too fast, as in
  training, but for the longest prompts.
- DeepSeek-V3 in 4 bits by vLLM of early 2025 took 1.8 to 4 times as long as planned. It is all that
  was found of latent attention; engines have gained much since, and nothing here tells how much.
- An iteration of SGLang on MI300X took 10.5 ms, planned 6.1: products ran at 60 % of what memory
  gives, attention at 55 %.
- Mixtures of experts on Hopper in FP8 took up to twice as long as planned, reading prompts too:
  products of experts were far from the rate of other products.
- gpt-fast unpacks weights of 4 and 8 bits at less than memory's rate: planned 15 to 40 % too fast.
- A short prompt alone took 1.1 to 1.5 times as long as planned on A100, H100 and H200: the host
  launched its kernels one by one. (Mixtral on A100 took 0.7 times as long.)
- vLLM and FasterTransformer of 2023 (`llm_benchmark`) are planned as `eager`, and still far too
  fast.
- One row cannot be what it says: Mixtral in 16 bits on two A100, 32 requests of 2048 + 2048, would
  read its weights faster than their memory can (20 ms an iteration; at the peak rate 23). It is
  planned 90 % too slow.
"""


_FULL = 30  # rows of a source that weighs as much as any


def misses(rows: Sequence[Published]) -> list[Miss]:
    return [
        Miss(
            Measured(row.source, row.label, None, row.measured_ns, system=row.server.gpu.name),
            row.error,
            0.0,
            tuple(traits(row.server, row.is_first)),
        )
        for row in rows
    ]


def reach(missed: Sequence[Miss]) -> dict[int, float]:
    """Return how many sigmas intervals reach, by engines whose kernels are launched together."""
    return factors([m for m in missed if "eager kernels" not in m.traits], _FULL)


def page(rows: Sequence[Published], missed: Sequence[Miss]) -> str:
    sources = len({row.source for row in rows})
    return _HEAD.format(n=len(rows), sources=sources) + "".join(_lines(rows, missed)) + _FOOT


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
