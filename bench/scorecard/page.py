"""What the scorecard found, as the page of the documentation and as the table of bands."""

import tomllib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from bench.scorecard.memory import BINS, Bin, Fits
from bench.scorecard.score import Prediction, by_kind, evidence, held_pct, scores, summary
from htk.whatif.calibration import factors

ROADS = ("trace", "described")

_HEAD = """# Scorecard of the what-ifs

Written by `python -m bench.scorecard --write`; how, is told at the end. Errors are in percent of
the step that was simulated or measured afterwards. *Held* is how often, in percent, the 90 % band
held that an answer states, learned from all groups but the one that is judged. *No change* and
*linear* (as many samples a second as before; for measured rows the same hardware efficiency) are
what one would say without a model: the median error, and the mean behind the stroke.
"""
_TRACE = """## From traces of simulated jobs

Predicted from the trace files alone, then simulated. Efficiencies (±15 %), links and latencies
(±30 %), tiles and contention are drawn from a seed that the predictor does not see; jitter and
contention are on, and chance falls anew.
"""
_DESCRIBED = """## From measured rows

A published row has no trace. A stand-in is simulated, made as fast or slow as the row's own step
was, and takes the same road: gate, edit, replay, to the other rows of its family. So these errors
are those of the stand-in as well. {rows}
"""
_END = """## How

- *Simulated*: 126M GPT, 8 layers of LLaMA-2 7B, 4 of Llama 3 8B on two nodes of four A100; micro-
  batch 8, full_shard, FSDP2; FSDP1, hybrid_shard, ddp and a straggler besides. Waves of tiles are
  how products run, in the simulator as in the prediction; how a product gets faster with its inner
  length, and with memory in its way, is the simulator's own.
- *Measured*: LLM-Foundry (Databricks), Aleph Alpha's layout sweep, vTrain's Megatron runs, NeMo's
  and Run:ai's weak scaling, torchtitan, BLOOM. Stages of a pipeline stand for the pipeline: m
  micro-batches through p stages take as long as m + p - 1 through one. Attention is described as
  the kernels of its time, norms as eager or fused.
- *Batch and length*: another length too; attention is made longer by as much.
- *Fused norms*: the eager passes of RMSNorm replaced by one.
- *tp*, *hardware*, *precision* are edits of low confidence and say so. Pipelines, context and
  expert parallelism, which are too, are not simulated.
- *Global batch, from two*: both steps are recordings, as `--with` takes them.
- *Bands* are the stated doubt times a factor for the kind of what-if
  (`htk/whatif/calibration.toml`), by split conformal prediction on the error in units of that
  doubt, over simulated jobs and measured rows together; of several edits the larger factor
  counts. With fewer than nine predictions the factor is the normal distribution's. With fewer
  than a hundred it is no less; with
  more it may be, down to where five points more than asked would hold: simulated clusters are
  tidier than real ones, for which that of 50 % narrows no more than that of 90 % either. How well
  the bands of a recorded trace hold lies between both columns: simulated jobs hold no surprises,
  measured rows have the error of a stand-in besides.
- Nothing is tuned to a single row: attention, tiles and spread of a stand-in are the same for a
  source. They are not blind, though: the attention rate was set after errors on LLM-Foundry's rows
  were seen, tiles after vTrain's. That ranks which
  are not at hand are waited for was modelled, and MaxText's cluster described from its
  scripts, after errors of *world* on these rows were seen; no constant was fitted to them.
"""
_COLUMNS = (
    "| what-if | n | refused | median | mean | 90th | wrong way | held | no change | linear |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)


def page(found: Sequence[Prediction], fits: Fits | None, sample: str) -> str:
    """The whole page."""
    parts = [_HEAD]
    texts = (_TRACE, _DESCRIBED.format(rows=sample))
    for road, text in zip(ROADS, texts, strict=True):
        kinds = by_kind(r for r in found if r.road == road)
        if kinds:
            lines = [_line(kind, rows, found) for kind, rows in kinds.items()]
            parts.append(text + "\n" + _COLUMNS + "".join(lines))
    parts.append(_bands(found))
    if fits is not None:
        parts.append(_fits(fits))
    parts.append(_others())
    refusals = _refusals(found)
    if refusals:
        parts.append(refusals)
    return "\n".join([*parts, _END])


def bands(found: Sequence[Prediction]) -> str:
    """The table that answers read, as TOML."""
    lines = ["# Written by bench/scorecard: multiples of the stated doubt, by edit.\n"]
    for edit, rows in evidence(found).items():
        half, most = factors(scores(rows))
        lines.append(f"[{edit}]\nn = {len(rows)}\nhalf = {half:.3f}\nmost = {most:.3f}\n")
    return "\n".join(lines)


def _line(kind: str, rows: list[Prediction], found: Sequence[Prediction]) -> str:
    s = summary(rows, found)
    cells = [kind, str(s["n"]), str(s["refused"])]
    cells += [_number(s[n]) for n in ("median_pct", "mean_pct", "p90_pct")]
    cells += [str(s["wrong_way"]), _number(s["held_pct"], 0)]
    cells += [
        f"{_number(s[f'{name}_median_pct'])} / {_number(s[f'{name}_mean_pct'])}"
        for name in ("no_change", "linear")
    ]
    return "| " + " | ".join(cells) + " |\n"


def _number(value: float | int | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _bands(found: Sequence[Prediction]) -> str:
    """How many times the stated doubt a band is wide, and how often it held."""
    lines = [
        "## Bands\n\nHow many times the stated doubt a band is wide, and how often (percent) that "
        "of 90 % held, by\nwhere the outcomes come from.\n\n"
        "| edit | n | 50 % band | 90 % band | held | simulated: n | held | measured: n | held |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    ]
    for edit, rows in evidence(found).items():
        half, most = factors(scores(rows))
        cells = [edit, str(len(rows)), f"{half:.2f}", f"{most:.2f}", _held(rows, found)]
        for road in ROADS[:2]:
            mine = [r for r in rows if r.road == road]
            cells += [str(len(mine)), _held(mine, found)]
        lines.append("| " + " | ".join(cells) + " |\n")
    return "".join(lines)


def _held(rows: Sequence[Prediction], found: Sequence[Prediction]) -> str:
    return _number(held_pct(rows, found), 0)


def _fits(fits: Fits) -> str:
    peaks = "".join(
        f"- {source}: {n} peaks, {median:.1f} % off at the median and {mean:.1f} % on average.\n"
        for source, n, median, mean in fits.peaks
    )
    return (
        "## Memory\n\n"
        "One model serves plans, what-ifs and this page. What it adds to the bytes of tensors\n"
        "(fragmentation, communicators) and how far it misses are here fitted to the other\n"
        "sources each time, so that none is judged by what it taught. What is counted at all (14\n"
        "bytes of a logit, 12 an element of norms that are not fused, 4 of logits that are\n"
        "gathered) was settled with these rows in view.\n\n"
        f"{fits.n} layouts that ran or ran out of memory (LLaMA 13B of Aleph Alpha, BLOOM):\n"
        f"{fits.right_pct:.1f} % told right; {fits.missed} ran out though said to fit,\n"
        f"{fits.false_alarms} fitted though said to run out. Always the more frequent answer:\n"
        f"{fits.majority_pct:.1f} %.\n\n" + peaks + "\n"
        "P(OOM) as stated, and how often it came to pass; measured peaks are held against GPUs of\n"
        "eleven sizes, as those would have run out.\n\n"
        "| stated % | layouts: n | stated | ran out | peaks: n | stated | over |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n" + _reliability(fits)
    )


def _reliability(fits: Fits) -> str:
    lines = []
    for low, high in pairwise(BINS):
        cells = [f"{100 * low:.0f} to {100 * high:.0f}"]
        for bins in (fits.outcomes, fits.sizes):
            cells += _cells(next((b for b in bins if b.low == low), None))
        lines.append("| " + " | ".join(cells) + " |\n")
    return "".join(lines)


def _cells(answers: Bin | None) -> list[str]:
    if answers is None:
        return ["0", "–", "–"]
    return [str(answers.n), _number(answers.stated_pct), _number(answers.failed_pct)]


def _others() -> str:
    text = Path(__file__).with_name("published.toml").read_text(encoding="utf-8")
    lines = [
        f"| {s['name']} | {s['predicts']} | {s['error']} | {s['source']} |\n"
        for s in tomllib.loads(text)["system"]
    ]
    return (
        "## What others publish\n\nOn their own data, percent; not the rows above.\n\n"
        "| system | predicts | error | source |\n| --- | --- | --- | --- |\n" + "".join(lines)
    )


def _refusals(found: Iterable[Prediction]) -> str:
    counted: dict[tuple[str, str], int] = {}
    for row in found:
        if row.predicted_ns is None:
            key = row.kind, row.verdict
            counted[key] = counted.get(key, 0) + 1
    if not counted:
        return ""
    lines = [f"- {kind}, {n} times: {why}\n" for (kind, why), n in sorted(counted.items())]
    return "## Refused\n\n" + "".join(lines)
