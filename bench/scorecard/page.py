"""The scorecard's results, as the page of the documentation and as the table of intervals."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from math import comb
from pathlib import Path

from bench.scorecard.intervals import MEASURED, SIMULATED, Learned, held_pct
from bench.scorecard.memory import BINS, Bin, Fits
from bench.scorecard.score import Prediction, by_kind, summary
from htk.whatif.calibration import HoldCount

ROADS = (SIMULATED, MEASURED)
_TAIL = 0.025

_HEAD = """# Scorecard of the what-ifs

Written by `python -m bench.scorecard --full --write`; how, is told at the end. Errors are in
percent of the step that was simulated or measured afterwards. *Held* is how often, in percent, the
90 % interval held that an answer states, learned from measured rows of all sources but the one that
is judged. *No change*, *linear* (as many samples a second as before; for measured rows the same
hardware efficiency) and *plan* (the measured step, times what `htk plan` expects afterwards over
what it expects before) are what one would say without a trace's help: the median error, and the
mean behind the stroke.

Rows of simulated jobs say that the graph is right, not the physics: simulator and predictor share
what a step is made of. Measured rows say both, with the error of a stand-in for the trace besides.
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
- *Batch and length*: another length (`--seq`), most of them with another batch (`--batch`), as one
  change of tokens. All are LLM-Foundry's. Of the 17 intervals that do not hold 12 begin or end at
  its 760M with 512 or 1024 tokens: of as many tokens with less attention than 2048 have, it did 9
  to 10 % fewer a second on A100, and 24 to 33 % more on H100.
- *Fused norms*: the eager passes of RMSNorm replaced by one. All are predicted too slow: eager
  norms take more of measured steps than of stand-ins. Two of these, simulated with fused norms,
  gained 11 and 8 %, where 13 and 12 % were measured.
- *Batch*: on vTrain's rows *plan* is nearer (2.9 % at the median, against 4.7). Measured steps grow
  as the micro-batch to the power of 0.95 where tp is 8, those of stand-ins as its power of 0.97 to
  0.99. Of six such predictions, held against the same stand-in simulated at the other batch, none
  is more than 0.7 % off. What a micro-batch costs whatever its size (sums of gradients, sends
  between stages, launches) is more than a stand-in holds; a trace shows it.
- *tp*, *hardware*, *precision*, *cp*, *ep*, *pp*, *serving* are edits of low confidence and say
  so. Pipelines are not simulated.
- *ep*, *balanced_experts*: the 126M GPT with 6 layers, and 3 layers of width 2048, each with eight
  experts of which a token takes two, on four of eight ranks, ddp. *cp*: sequences are four times
  as long.
- *serving*: 16 layers of Llama 3 8B on an H100 that answer 32 requests of 1024 tokens. Public
  recordings of servers hold one iteration each, so that none could be held against another. Near
  the balance of a GPU both reading weights and computing cost, and hide each other only in part:
  the root of the sum of their squares. Of exponents 1 to 6, and the longer of the two alone, 2 and
  3 agree best with the batches that TensorRT-LLM published
  ([how well plans of servers hold](serving_scorecard.md)).
- *split*: products and all-reduces of tensor parallelism (four ranks) in two and four pieces, each
  a kernel and a transfer of its own (`tensor`); halves of a batch in turn (`batch`) and tiles that
  are sent as they are done (`fused`) are not simulated.
- *Global batch, from two*: both steps are recordings, as `--with` takes them.
- Ranges of *intervals* are those of independent rows. Rows of one source are not independent, and
  most kinds have two sources at most: the intervals of the one are then learned from the errors of
  the other alone.
- *Intervals* are the stated uncertainty, with 2 % of the step that models miss of any job beside
  it, times a factor for the kind of what-if (`htk/whatif/calibration.toml`), by split conformal
  prediction on measured rows alone; ten rows spread like those of all kinds count beside the
  kind's own. Of several edits the larger factor counts. Of kinds that nobody has measured the
  factor is that of all kinds, or of simulated jobs where that is larger. How often they held is
  counted with the whole source of a row left out. The form (2 %, ten rows) was taken from a trial
  on other rows, and not fitted to these.
- Nothing is tuned to a single row: attention, tiles and spread of a stand-in are the same for a
  source. They are not blind, though: the attention rate was set after errors on LLM-Foundry's rows
  were seen, tiles after vTrain's. Waiting for unrecorded ranks was modelled, and
  MaxText's cluster described from its scripts, after errors of *world* on these rows were seen;
  that attention gains less from *hardware* than products do, by figures of its authors, and that
  the last stage of *pp* holds the output, after errors of these. No constant was fitted to them.
- *tp*: on both sources the prediction is nearer than *plan*, on neither by much. Of Aleph Alpha's
  jobs 14 to 17 % of a step stays whatever tp is (2, 4 and 8 against 1: eager kernels that are not
  split, and all-reduces), of a stand-in, whose kernels are few and fused, less. A trace shows such
  kernels; a step time alone does not. Nor do the two sources follow one law: on 512 GPUs of
  vTrain's a micro-batch through a stage takes 1.66 to 2.27 times as long with half of tp 8, 1.84
  to 2.93 with half of 4, and 1.16 with half of 2; more than 2 means that a GPU with less to send
  does less.
- *Batch and world* is as good as *plan*, as little but the work of a GPU changes. Most of both
  means is one measured point: LLM-Foundry's 1B took a quarter longer on 32 GPUs than on 16 or 64.
- *World*: where jobs grow (55 rows) steps became 3.2 % longer at the median, 4.2 % on average;
  0.9 and 1.3 % were predicted, 0.2 and 0.3 % by *plan*. How much the slowest of more links loses is
  read from transfers whose ranks were all recorded; stand-ins show four of theirs, and links that
  vary by 2 % from call to call.
- *Checkpointing*: all pairs are of one source, so that intervals are judged that other kinds had
  taught; those that answers state were learned with it, and are wider. Its rows scatter more than
  work tells: a step took 1.14 to 1.40 times as long with recomputation, most of them 1.24 to 1.36,
  and the rows that the prediction misses most (16, 14, 9 %) *plan* misses by as much. Two
  stand-ins, simulated again without recomputation, were predicted 0.3 and 3 % off.
"""
_COLUMNS = (
    "| what-if | n | refused | median | mean | 90th | wrong way | held | no change | linear "
    "| plan |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)


def page(predictions: Sequence[Prediction], fits: Fits | None, sample: str) -> str:
    """The whole page."""
    parts, learned = [_HEAD], Learned(predictions)
    texts = (_TRACE, _DESCRIBED.format(rows=sample))
    for road, text in zip(ROADS, texts, strict=True):
        kinds = by_kind(r for r in predictions if r.road == road)
        if kinds:
            lines = [_line(kind, rows, learned) for kind, rows in kinds.items()]
            parts.append(text + "\n" + _COLUMNS + "".join(lines))
    parts.append(_intervals(learned))
    if fits is not None:
        parts.append(_fits(fits))
    parts.append(_others())
    refusals = _refusals(predictions)
    if refusals:
        parts.append(refusals)
    return "\n".join([*parts, _END])


def _line(kind: str, rows: list[Prediction], learned: Learned) -> str:
    s = summary(rows)
    cells = [kind, str(s["n"]), str(s["refused"])]
    cells += [_number(s[n]) for n in ("median_pct", "mean_pct", "p90_pct")]
    cells += [str(s["wrong_way"]), _number(held_pct(rows, learned), 0)]
    cells += [
        f"{_number(s[f'{name}_median_pct'])} / {_number(s[f'{name}_mean_pct'])}"
        for name in ("no_change", "linear", "planned")
    ]
    return "| " + " | ".join(cells) + " |\n"


def _number(value: float | int | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _intervals(learned: Learned) -> str:
    """How wide intervals are, how often they held, and where that is not what they state."""
    lines = [
        "## Intervals\n\nMultiples of the stated uncertainty, learned on measured rows, and how "
        "often intervals of 90 % held\nwith the row's source left out. *Range*: what 90 % would "
        "give by chance, nineteen times of twenty.\n\n"
        "| edit | 50 % | 90 % | measured: held | range | simulated: held |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
    ]
    for edit in learned.edits:
        half, most = learned.factors(edit)
        measured, simulated = (
            learned.held(learned.of(edit, road)) for road in (MEASURED, SIMULATED)
        )
        low, high = by_chance(measured.n)
        missed = measured.n and not low <= measured.held <= high
        cell = f"**{measured}**" if missed else str(measured)
        cells = [edit, f"{half:.2f}", f"{most:.2f}", cell]
        cells += [f"{low} to {high}" if measured.n else "–", str(simulated)]
        lines.append("| " + " | ".join(cells) + " |\n")
    return "".join([*lines, "\n", _pooled(learned)])


def _pooled(learned: Learned) -> str:
    """All measured rows together, combined edits too."""
    rows = [r for r in learned.predictions if r.road == MEASURED and r.edits]
    if not rows:
        return ""
    half, most = learned.held(rows, 0), learned.held(rows, 1)
    wide, least = learned.widths()
    text = (
        f"Over all measured rows {_share(most)} held of the 90 % intervals ({most}) and "
        f"{_share(half)} of those of\n50 % ({half}). On average they reach {wide:.1f} % to a side, "
        f"{wide / least:.2f} times what the smallest\nmultiples would have needed that hold nine "
        f"of ten of these rows, chosen for each kind afterwards\n({least:.1f} %).\n"
    )
    return text + "".join(_outside(learned, level) for level in (1, 0))


def _outside(learned: Learned, level: int) -> str:
    """Return the edits whose intervals held more or less often than chance allows, in words.

    `level`: 0 for 50 %, 1 for 90 %.
    """
    percent, names = (50, 90)[level], []
    for edit in learned.edits:
        held = learned.held(learned.of(edit, MEASURED), level)
        low, high = by_chance(held.n, percent / 100)
        if held.n and not low <= held.held <= high:
            names.append(f"{edit} ({held}; {low} to {high} by chance)")
    listed = ", ".join(names) or "none"
    return f"\nOutside the range of {percent} %: {listed}.\n"


def _share(held: HoldCount) -> str:
    return f"{100 * held.held / held.n:.0f} %"


def by_chance(n: int, share: float = 0.9) -> tuple[int, int]:
    """Return between which counts of n nineteen draws of twenty lie, each true with this chance."""
    odds = [comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
    below = list(accumulate(odds))
    low = next(k for k in range(n + 1) if below[k] > _TAIL)
    high = next(k for k in range(n + 1) if below[k] >= 1 - _TAIL)
    return low, high


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
        "sixty sizes, as those would have run out. Peaks are taken to miss as a logistic\n"
        "distribution does: of five forms it told the sources left out best. A normal one, with\n"
        "as many rows far off, has to be so wide that of what it called 60 to 80 % likely 81 to\n"
        "85 % ran out.\n\n"
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


def _refusals(predictions: Iterable[Prediction]) -> str:
    reasons: dict[str, Counter[str]] = {}
    for row in predictions:
        if row.predicted_ns is None:
            # what a guard measured, and what to do about it, differ from row to row
            reason = row.verdict.removeprefix("refused: ").partition(":")[0]
            reasons.setdefault(row.kind, Counter())[reason] += 1
    if not reasons:
        return ""
    lines = (
        f"- {kind}: {', '.join(f'{n} by {reason}' for reason, n in counted.most_common())}\n"
        for kind, counted in sorted(reasons.items())
    )
    return "## Refused\n\n" + "".join(lines)
