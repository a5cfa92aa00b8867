"""Many answers: every combination of values, best-case savings, what to do first."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from htk.base.errors import UsageError
from htk.whatif.answer import Answer
from htk.whatif.composed_edits import composed_edits
from htk.whatif.edited_job import edited_job
from htk.whatif.edited_step import check_once, order_edits
from htk.whatif.label import SHARDINGS
from htk.whatif.memory import predict_peak
from htk.whatif.predict import INDISTINGUISHABLE, predict_answer, refuse_answer
from htk.whatif.recorded_step import Baseline
from htk.whatif.server_edits import server_actions
from htk.whatif.zero import STAGES

Edits = tuple[tuple[str, str], ...]

OUT_OF_MEMORY = "out of memory"
MAY_NOT_FIT = "may not fit"
LAST_THAT_FITS = "last that fits"
LAUNCH_BOUND = "launch-bound"
LAST_LAUNCH_BOUND = "knee: launch-bound up to here"
UNDER_A_WAVE = "under one wave"
LAST_UNDER_A_WAVE = "knee: under one wave up to here"

LIKELY_FITS = 0.05  # probability of running out of memory, up to which a batch is said to fit
_MOST_BATCH = 256.0  # times the recorded, that is tried
_WORTH = 0.002  # of the time per sample

BOUNDS = (
    ("no_skew", "on"),
    ("overlap", "perfect"),
    ("remove_syncs", "on"),
    ("no_data_wait", "on"),
    ("graphs", "on"),
    ("host", "2x"),
    ("balanced_experts", "on"),
)
# What a user can do without other hardware. Batches are held against each other by sample.
ACTIONS = (
    *(("batch", "2x"), ("batch", "4x"), ("accumulation", "2x"), ("accumulation", "1")),
    *(("sharding", name) for name in (*SHARDINGS, *STAGES)),
    *(("checkpointing", "off"), ("checkpointing", "selective"), ("precision", "bf16")),
    *(("precision", "fp8"), ("tp", "1"), ("tp", "2"), ("sp", "on"), ("cp", "1"), ("pp", "1")),
    *(("prefetch_depth", "2"), ("bucket", "100MB"), ("gradients", "0.5x"), ("workers", "2x")),
    *(("optimizer", "fused"), ("optimizer", "8bit"), ("loss", "fused"), ("attention", "flash")),
    *(("no_sync", "on"), ("compile", "on")),
    *(("remove_syncs", "on"), ("graphs", "on"), ("balanced_experts", "on")),
)


def sweep_edits(
    start: Baseline,
    fixed: Sequence[tuple[str, str]],
    over: Sequence[tuple[str, Sequence[str]]],
    measured_ns: int | None = None,
    prior: Edits = (),
) -> list[Answer]:
    """Return every combination of the values of one or more edits, edges and knees marked.

    `prior`: of the prediction that they change.
    """
    check_once([name for name, _ in (*fixed, *over)])
    combinations: list[Edits] = [composed_edits(prior, fixed)]
    for name, listed in over:
        values = SHARDINGS if (name, *listed) == ("sharding", "all") else listed
        combinations = [composed_edits(c, [(name, v)]) for c in combinations for v in values]
    if len(combinations) == 1:
        return [predict_answer(start, combinations[0], measured_ns)]
    return mark_answers([try_edits(start, c, measured_ns) for c in combinations])


def list_bounds(start: Baseline, measured_ns: int | None = None) -> list[Answer]:
    """Return the best-case savings, each edit alone, largest first."""
    asked = [*BOUNDS]
    if len(start.graph.ranks) > 1:
        asked.append(("fix_rank", "all"))
    if start.refused:
        return [predict_answer(start, [pair], measured_ns) for pair in asked]
    answers = [try_edits(start, (pair,), measured_ns) for pair in asked]
    present = [a for a in answers if a.step_ns is not None]  # without the causes that are not there
    return sorted(present, key=lambda a: a.step_ns or 0)


def recommend_edits(start: Baseline, measured_ns: int | None = None) -> list[Answer]:
    """Return the edits that can be made and should win, by gain over uncertainty, of a server by
    tokens a second of a GPU; those that do not fit in memory are left out."""
    if start.refused:
        return [predict_answer(start, [], measured_ns)]
    asked = [*ACTIONS] if start.served is None else server_actions(start.served, start.model.device)
    if len(start.graph.ranks) > 1:
        asked.append(("fix_rank", "all"))
    answers = [try_edits(start, (pair,), measured_ns) for pair in asked]
    worth = [a for a in answers if _is_winning(a) and (a.p_oom or 0.0) <= LIKELY_FITS]
    if start.served is not None:
        return sorted(worth, key=_by_tokens_for_money)
    return sorted(worth, key=lambda a: -(a.gain_over_sigma or 0.0))


def _by_tokens_for_money(answer: Answer) -> tuple[bool, float]:
    """Return what puts most tokens a second of a GPU first, and GPUs of another price last."""
    return "hardware" in answer.names, -(answer.tokens_per_s or 0.0) / answer.gpus


def _is_winning(answer: Answer) -> bool:
    """Return whether an answer wins more than a change is worth, and than the replay could miss."""
    if answer.step_ns is None or INDISTINGUISHABLE in answer.verdict:
        return False
    return answer.step_ns < (1 - _WORTH) * answer.measured_ns * answer.each


def try_edits(start: Baseline, edits: Edits, measured_ns: int | None) -> Answer:
    try:
        return predict_answer(start, edits, measured_ns)
    except UsageError as error:
        none = refuse_answer(start, order_edits(edits), measured_ns or start.step_ns)
        return replace(none, verdict=f"refused: {error}")


def mark_answers(answers: list[Answer]) -> list[Answer]:
    """Return each with where it stands: beyond memory, short of a knee, the last before an edge."""
    result = list(answers)
    for k, answer in enumerate(answers):  # some tens
        following = _find_following(answers, k)
        words = []
        if (answer.p_oom or 0.0) > LIKELY_FITS:
            words.append(OUT_OF_MEMORY if (answer.p_oom or 0.0) >= 0.5 else MAY_NOT_FIT)
        elif following is not None and (following.p_oom or 0.0) > LIKELY_FITS:
            words.append(LAST_THAT_FITS)
        if answer.launch_bound:
            last = following is not None and not following.launch_bound
            words.append(LAST_LAUNCH_BOUND if last else LAUNCH_BOUND)
        if answer.under_a_wave:
            last = following is not None and not following.under_a_wave
            words.append(LAST_UNDER_A_WAVE if last else UNDER_A_WAVE)
        result[k] = replace(answer, mark="; ".join(words))
    return result


def _find_following(answers: list[Answer], index: int) -> Answer | None:
    """Return the one with the next larger batch and else the same edits."""
    answer = answers[index]
    rest = {e for e in answer.edits if e[0] != "batch"}
    larger = [
        a
        for a in answers
        if a.step_ns is not None
        and {e for e in a.edits if e[0] != "batch"} == rest
        and a.samples_ratio / a.devices_ratio > answer.samples_ratio / answer.devices_ratio
    ]
    return min(larger, key=lambda a: a.samples_ratio / a.devices_ratio, default=None)


def memory_edge(start: Baseline, edits: Edits) -> str | None:
    """Return the largest batch of a rank that is more likely to fit than not; found once for what
    else is asked for."""
    rest = tuple(edit for edit in order_edits(edits) if edit[0] != "batch")  # all are tried
    if rest not in start.memory_edges:
        start.memory_edges[rest] = _memory_edge(start, rest)
    return start.memory_edges[rest]


def _memory_edge(start: Baseline, edits: Edits) -> str | None:
    held = start.memory
    job = edited_job(start.job, edits)
    here = None if held is None else predict_peak(held, job, 1.0)
    if held is None or here is None or here.p_oom is None:
        return None
    batch = start.job.micro_batch
    chances = {}
    tried = np.append(np.geomspace(1 / 64, _MOST_BATCH, 800)[:-1], _MOST_BATCH)
    if batch is not None:
        tried = np.arange(1, _MOST_BATCH * batch + 1) / batch
    for ratio in tried.tolist():
        own = None if batch is None else batch * ratio
        peak = predict_peak(held, replace(job, micro_batch=own), ratio)
        chances[ratio] = (peak.p_oom if peak else None) or 0.0
    most = max((ratio for ratio, chance in chances.items() if chance <= LIKELY_FITS), default=0.0)
    if not most:
        return "none"
    micro_batch = "" if batch is None else f", micro-batch {round(batch * most)}"
    more = " or more" if most >= _MOST_BATCH else ""
    return f"{most:.1f}x the recorded{micro_batch}{more} (P(OOM) {100 * chances[most]:.1g} %)"
