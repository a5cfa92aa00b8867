"""Answers as a table."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from htk.base.columns.arrow import build_texts
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.base.schema import TEXT
from htk.whatif.answer import Answer
from htk.whatif.cost import compute_goodput, joules_per_token, per_million_tokens, per_run
from htk.whatif.label import RETURNS


@dataclass(frozen=True)
class Terms:
    """The prices, power and failures of cost, energy and goodput; None: left out."""

    price: float | None = None  # of a GPU-hour
    run_tokens: float | None = None  # of the whole run
    watts: float | None = None  # of a GPU; else its limit
    gpu_mtbf_s: float | None = None  # mean time between failures of one GPU; needs the next two
    restart_s: float | None = None
    checkpoint_s: float | None = None


DEFAULT = Terms()


def build_answer_rows(answers: Sequence[Answer], terms: Terms = DEFAULT) -> pa.Table:
    """Return a row for each answer."""
    records = [_build_answer_row(a, terms) for a in answers]
    columns = [
        build_texts([m[f.name] for m in records])
        if f.type == TEXT
        else pa.array([m[f.name] for m in records], f.type)
        for f in RETURNS
    ]
    return pa.table(columns, schema=RETURNS)


def _build_answer_row(a: Answer, terms: Terms) -> Fields:
    lo50, hi50, lo90, hi90 = a.intervals
    ratio = None if a.step_ns is None else a.step_ns / a.measured_ns
    each = a.each
    return {
        "whatif": ", ".join(f"{name} {value}" for name, value in a.edits) or "nothing",
        "step_time_ns": a.step_ns,
        "step_time_ns_lo50": lo50,
        "step_time_ns_hi50": hi50,
        "step_time_ns_lo90": lo90,
        "step_time_ns_hi90": hi90,
        "measured_step_time_ns": a.measured_ns,
        "change_pct": None if ratio is None else 100 * (ratio - 1),
        "time_per_sample_change_pct": None if ratio is None else 100 * (ratio / each - 1),
        "tokens_per_s": a.tokens_per_s,
        "tokens_per_s_lo90": _in_proportion(a.tokens_per_s, a.step_ns, hi90),
        "tokens_per_s_hi90": _in_proportion(a.tokens_per_s, a.step_ns, lo90),
        "generated_tokens_per_s": a.generated_per_s,
        "tpot_ns": _round_value(a.tpot_ns),
        "tpot_ns_lo90": _round_value(_in_proportion(a.tpot_ns, lo90, a.step_ns)),
        "tpot_ns_hi90": _round_value(_in_proportion(a.tpot_ns, hi90, a.step_ns)),
        "tokens_per_s_per_gpu": None if a.tokens_per_s is None else a.tokens_per_s / a.gpus,
        "mfu_pct": a.mfu_pct,
        "exposed_comm_ns": a.exposed_ns,
        "idle_ns": a.idle_ns,
        "peak_memory_bytes": None if a.peak is None else round(a.peak.total),
        "allocated_bytes": None if a.peak is None else round(a.peak.allocated),
        "p_oom": a.p_oom,
        **_compute_economy(a, terms),
        "naive_no_change_ns": None if ratio is None else a.measured_ns,
        "naive_linear_ns": None if ratio is None else round(a.measured_ns * each),
        "gain_over_sigma": a.gain_over_sigma,
        "regret_pct": None if hi90 is None else max(100 * (hi90 / a.measured_ns / each - 1), 0.0),
        "mark": a.mark or None,
        "verdict": a.verdict,
        "standing": a.standing or None,
        "waterfall": json.dumps(dict(a.waterfall)),
        "sigma_by_source": json.dumps({k: round(100 * v, 2) for k, v in a.sources.items()}),
        "intervals_held": a.intervals_held or None,
        "next_recording": a.narrow or None,
        "assumptions": "; ".join(a.assumptions),
    }


def _in_proportion(value: float | None, step: int | None, other: int | None) -> float | None:
    """Return a value times one step over another; null: not known."""
    return None if value is None or step is None or not other else value * step / other


def _round_value(value: float | None) -> int | None:
    return None if value is None else round(value)


def _compute_economy(a: Answer, terms: Terms) -> dict[str, float | None]:
    economy: dict[str, float | None] = dict.fromkeys(_ECONOMY)
    if not a.tokens_per_s:
        return economy
    if terms.price is not None:
        cost = per_million_tokens(terms.price, a.gpus, a.tokens_per_s)
        _, _, lo90, hi90 = a.intervals
        economy["cost_per_million_tokens"] = cost
        economy["cost_per_million_tokens_lo90"] = _in_proportion(cost, lo90, a.step_ns)
        economy["cost_per_million_tokens_hi90"] = _in_proportion(cost, hi90, a.step_ns)
    watts = terms.watts or a.watts
    if watts is not None:
        economy["energy_j_per_token"] = joules_per_token(watts, a.gpus, a.tokens_per_s)
    share = 1.0
    mtbf, restart, checkpoint = terms.gpu_mtbf_s, terms.restart_s, terms.checkpoint_s
    if mtbf is not None or restart is not None or checkpoint is not None:
        if mtbf is None or restart is None or checkpoint is None:
            raise UsageError(
                "goodput needs the times between failures, of a restart and of a checkpoint: "
                "--gpu-mtbf 5e4h --restart 10min --checkpoint 30s"
            )
        share = compute_goodput(a.gpus, mtbf, restart, checkpoint).share
        economy["goodput_pct"] = 100 * share
    if terms.run_tokens is not None and share:
        seconds = terms.run_tokens / a.tokens_per_s / share
        economy["run_hours"] = seconds / 3600
        if terms.price is not None:
            economy["cost_per_run"] = per_run(terms.price, a.gpus, seconds)
    return economy


_ECONOMY = (
    "cost_per_million_tokens",
    "cost_per_million_tokens_lo90",
    "cost_per_million_tokens_hi90",
    "cost_per_run",
    "run_hours",
    "goodput_pct",
    "energy_j_per_token",
)
