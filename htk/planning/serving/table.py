"""Described servers as tables: a map over lengths and requests, layouts, parts of iterations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import pyarrow as pa

from htk.base.core.chart import Bar, Heatmap
from htk.base.core.label import Label
from htk.base.mappings import Fields
from htk.base.schema import BOOL, FLOAT64, INT64, TEXT, table
from htk.planning.plan.certainty import Certainty
from htk.planning.plan.table import rows_as
from htk.planning.serving.certainty import estimate_serving_certainty
from htk.planning.serving.iteration import IterationWork
from htk.planning.serving.objectives import (
    Objective,
    ServedLayout,
    fit_to_limits,
    list_served_layouts,
)
from htk.planning.serving.server import Server
from htk.planning.serving.steady import Answering, Load, SteadyServer

MAP = table(
    prompt=(INT64, "Tokens of each request's prompt."),
    generated=(INT64, "Tokens that each request is answered with."),
    requests=(INT64, "Requests in a replica at once."),
    tpot_ns=(INT64, "Expected time per output token of a request."),
    tpot_ns_lo90=(INT64, "Nine of ten such times are longer than this …"),
    tpot_ns_hi90=(INT64, "… and shorter than this."),
    ttft_ns=(INT64, "Expected time to a request's first token, without a queue of prompts."),
    ttft_ns_lo90=(INT64, "Nine of ten such times are longer than this …"),
    ttft_ns_hi90=(INT64, "… and shorter than this."),
    ttft_ns_p90=(INT64, "Nine of ten requests that arrive at random; null: queues grow."),
    tokens_per_s=(FLOAT64, "Generated, of a replica."),
    tokens_per_s_per_gpu=(FLOAT64, "Of one GPU."),
    requests_per_s=(FLOAT64, "Of a replica."),
    kv_cache_bytes=(INT64, "Keys and values on a GPU, all requests at their full length."),
    fits=(BOOL, "Whether they fit beside the weights."),
    most_requests=(INT64, "Requests of this length that fit."),
    answered=(FLOAT64, "Of the requests: those being answered; the rest are read, or wait."),
    holds=(BOOL, "Whether the limits of latency hold; null: none given."),
    cost_per_million_tokens=(FLOAT64, "At the price given; null: no price."),
)

LAYOUTS = table(
    prompt=(INT64, "Tokens of each request's prompt."),
    generated=(INT64, "Tokens that each request is answered with."),
    layout=(TEXT, "GPUs that share a replica; prefill and decode where they are apart."),
    gpu_count=(INT64, "GPUs of the layout."),
    requests_per_s=(FLOAT64, "At most, within the limits."),
    requests_per_s_lo90=(FLOAT64, "Nineteen of twenty such layouts hold them at this rate."),
    requests_per_s_per_gpu=(FLOAT64, "Of one GPU: goodput."),
    tokens_per_s_per_gpu=(FLOAT64, "Of one GPU."),
    requests=(INT64, "Being answered by each replica that answers."),
    tpot_ns=(INT64, "Expected time per output token, with what the transfer adds."),
    ttft_ns_p90=(
        INT64,
        "Nine of ten requests have their first token by then; null: queues grow.",
    ),
    kv_transfer_ns=(INT64, "Of a request's keys and values between replicas; null: none."),
    cost_per_million_tokens=(FLOAT64, "At the price given; null: no price."),
)

PARTS = table(
    prompt=(INT64, "Tokens of each request's prompt."),
    requests=(INT64, "Requests in a replica at once."),
    phase=(TEXT, "prefill: reading one prompt alone; decode: answering all requests."),
    part=(TEXT, "Of the iteration: they add up to it."),
    duration_ns=(INT64, "Time of it."),
    step_pct=(FLOAT64, "Share of the iteration."),
)

MAP_LABEL = Label(
    "serving_map",
    "What would serving this model on these GPUs take: latency, throughput, memory, cost?",
    Heatmap("requests", "prompt", "tpot_ns"),
)
LAYOUTS_LABEL = Label(
    "serving_layouts",
    "On which GPUs would a server hold its limits of latency at the largest rate?",
    Bar("layout", ("requests_per_s_per_gpu",)),
)
PARTS_LABEL = Label(
    "serving_parts", "What would an iteration of this server consist of?",
    Bar("part", ("duration_ns",), color="phase"),
)  # fmt: skip


@dataclass(frozen=True)
class Mapped:
    """A replica in one cell of the map, and how sure its times are."""

    steady: SteadyServer
    state: Answering
    token: Certainty
    first: Certainty


def map_loads(server: Server, loads: Sequence[Load], requests: Sequence[int]) -> list[Mapped]:
    """Return each load's replica with each number of requests; without numbers, powers of two that
    fit and the largest that does."""
    token = estimate_serving_certainty(server)
    first = estimate_serving_certainty(server, first=True)
    cells = []
    for load in loads:
        steady = SteadyServer(server, load)
        counts = requests or _list_powers(steady.most_requests)
        cells += [Mapped(steady, steady.answering(n), token, first) for n in counts]
    return cells


def _list_powers(most: int) -> list[int]:
    counts = [1 << bit for bit in range(max(most, 1).bit_length())]
    return sorted({*counts, max(most, 1)})


def map_table(cells: Sequence[Mapped], objective: Objective | None) -> pa.Table:
    return rows_as(MAP, [_build_cell(cell, objective) for cell in cells])


def _build_cell(cell: Mapped, objective: Objective | None) -> Fields:
    state = cell.state
    load = cell.steady.load
    server = cell.steady.server
    token = cell.token.factor(90)
    first = cell.first.factor(90)
    return {
        "prompt": load.prompt,
        "generated": load.generated,
        "requests": round(state.requests),
        "tpot_ns": round(state.tpot_ns),
        "tpot_ns_lo90": round(state.tpot_ns / token),
        "tpot_ns_hi90": round(state.tpot_ns * token),
        "ttft_ns": round(state.ttft_ns),
        "ttft_ns_lo90": round(state.ttft_ns / first),
        "ttft_ns_hi90": round(state.ttft_ns * first),
        "ttft_ns_p90": _round_finite(state.ttft_p90_ns),
        "tokens_per_s": state.tokens_per_s,
        "tokens_per_s_per_gpu": state.tokens_per_s / server.gpus,
        "requests_per_s": state.requests_per_s,
        "kv_cache_bytes": round(state.kv_bytes),
        "fits": state.fits,
        "most_requests": cell.steady.most_requests,
        "answered": state.answered,
        "holds": None if objective is None else objective.holds(state) and state.fits,
        "cost_per_million_tokens": compute_token_price(server, state.tokens_per_s, server.gpus),
    }


def _round_finite(ns: float) -> int | None:
    return round(ns) if math.isfinite(ns) else None


def compute_token_price(server: Server, tokens_per_s: float, gpus: int) -> float | None:
    """Return the price of a million tokens generated; None: no price was given."""
    return None if server.price is None else gpus * server.price / (3.6e-3 * tokens_per_s)


def layouts_table(server: Server, load: Load, objective: Objective) -> pa.Table:
    best = list_served_layouts(server, load, objective)
    return rows_as(
        LAYOUTS, [_build_layout_row(server, load, objective, goodput) for goodput in best]
    )


def tighten_objective(server: Server, objective: Objective) -> Objective:
    """Return the limits to plan for that nineteen of twenty such servers then hold."""
    first = estimate_serving_certainty(server, first=True).factor(90)
    token = estimate_serving_certainty(server, first=False).factor(90)
    return objective.tighter(first, token)


def _find_sure_rate(best: ServedLayout, load: Load, objective: Objective) -> float:
    """By the server that is less sure; as many GPUs of the ratio that then suits."""
    limits = [tighten_objective(server, objective) for server in best.servers]
    tightest = Objective(min(o.ttft_ns for o in limits), min(o.tpot_ns for o in limits))
    least = fit_to_limits(best, load, tightest)
    return least.requests_per_s_per_gpu * best.gpus if least else 0.0


def _build_layout_row(
    server: Server, load: Load, objective: Objective, best: ServedLayout
) -> Fields:
    tokens = best.requests_per_s * load.generated
    return {
        "prompt": load.prompt,
        "generated": load.generated,
        "layout": best.layout,
        "gpu_count": best.gpus,
        "requests_per_s": best.requests_per_s,
        "requests_per_s_lo90": _find_sure_rate(best, load, objective),
        "requests_per_s_per_gpu": best.requests_per_s_per_gpu,
        "tokens_per_s_per_gpu": tokens / best.gpus,
        "requests": round(best.requests),
        "tpot_ns": round(best.tpot_ns),
        "ttft_ns_p90": _round_finite(best.ttft_p90_ns),
        "kv_transfer_ns": round(best.kv_transfer_ns) if best.kv_transfer_ns else None,
        "cost_per_million_tokens": compute_token_price(server, tokens, best.gpus),
    }


def parts_table(cells: Sequence[Mapped]) -> pa.Table:
    return rows_as(PARTS, [row for cell in cells for row in _list_part_rows(cell)])


def _list_part_rows(cell: Mapped) -> list[Fields]:
    load = cell.steady.load
    alone = cell.steady.compute.iteration(IterationWork(load.prompt, 1.0))
    return [
        {
            "prompt": load.prompt,
            "requests": round(cell.state.requests),
            "phase": phase,
            "part": f.name,
            "duration_ns": round(getattr(time, f.name)),
            "step_pct": 100 * getattr(time, f.name) / time.total,
        }
        for phase, time in (("prefill", alone), ("decode", cell.state.decode))
        for f in fields(time)
    ]
