"""Plans as tables: a row for each plan, and one plan's parts, ledger and stages."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from htk.base.columns.arrow import build_texts
from htk.base.core.chart import Bar
from htk.base.core.label import Label
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.least import least_gpus
from htk.planning.plan.step import Plan

COMPARED = ("ddp", "zero1", "shard_grad_op", "full_shard", "hybrid_shard")
MFU = (
    "MFU: model FLOPs (2 a multiply-add, causal attention halved, without recomputation) over the "
    "step and the dense bf16 peak"
)

RETURNS = table(
    strategy=(TEXT, "How parameters, gradients and optimizer state are sharded."),
    step_time_ns=(INT64, "Expected step."),
    step_time_ns_lo90=(INT64, "Nine of ten such steps take longer than this …"),
    step_time_ns_hi90=(INT64, "… and less than this."),
    tokens_per_s=(FLOAT64, "Of the whole job."),
    mfu_pct=(FLOAT64, "Model FLOPs (causal attention halved, no recompute) of dense peak."),
    peak_memory_bytes=(INT64, "Expected peak of a GPU."),
    allocated_bytes=(INT64, "Of that peak, what tensors take."),
    p_oom=(FLOAT64, "Probability that it does not fit."),
    least_gpus=(INT64, "Fewest such GPUs on which it is expected to fit; null: none do."),
    least_gpus_checkpointed=(INT64, "The same with full activation checkpointing."),
    compute_ns=(INT64, "Of the step: products, attention, what moves memory, gaps."),
    comm_ns=(INT64, "All transfers of a rank one after the other, exposed or not."),
    exposed_comm_ns=(INT64, "Of the step: communication that no computing hides."),
    bubble_ns=(INT64, "Of the step: a pipeline's stages wait for each other."),
    optimizer_ns=(INT64, "Of the step: the update of parameters."),
    wire_bytes=(INT64, "Sent by a rank in a step."),
    parameter_bytes=(INT64, "Of the peak: parameters, gathered ones too."),
    gradient_bytes=(INT64, "Of the peak: gradients."),
    optimizer_bytes=(INT64, "Of the peak: the optimizer's state."),
    activation_bytes=(INT64, "Of the peak: activations and logits."),
    tokens_per_s_per_gpu=(FLOAT64, "Of one GPU."),
    step_time_ns_lo50=(INT64, "Three of four such steps take longer than this …"),
    step_time_ns_hi50=(INT64, "… and as many less than this."),
    cost_per_million_tokens=(FLOAT64, "At the price given; null: no price."),
    run_days=(FLOAT64, "For the tokens given; null: none given."),
    run_cost=(FLOAT64, "For the tokens and price given; null: one is missing."),
    energy_j_per_token=(FLOAT64, "At the GPUs' rated power, or as given; null: not known."),
    unchecked=(TEXT, "What of this plan no measured job was held against."),
)

LEDGER = table(
    strategy=(TEXT, "How parameters, gradients and optimizer state are sharded."),
    kind=(TEXT, "Of which parallelism: data, tensor, context, expert or pipeline."),
    phase=(TEXT, "The pass: forward or backward."),
    collective=(TEXT, "What the ranks call."),
    group_size=(INT32, "Ranks that take part."),
    input_gib=(FLOAT64, "What a rank hands in, in a step."),
    wire_gib=(FLOAT64, "What a rank sends, in a step."),
    duration_ns=(INT64, "All of it one after the other, exposed or not."),
)

STAGES = table(
    strategy=(TEXT, "How parameters, gradients and optimizer state are sharded."),
    stage=(INT32, "Of the pipeline, from 0."),
    parameter_bytes=(INT64, "Parameters, gathered ones too."),
    gradient_bytes=(INT64, "Gradients and their buffers."),
    optimizer_bytes=(INT64, "The optimizer's state."),
    activation_bytes=(INT64, "Activations, of all micro-batches in flight."),
    logit_bytes=(INT64, "Logits and their loss."),
    reserved_bytes=(INT64, "Context, libraries, communicators, fragmentation."),
    peak_memory_bytes=(INT64, "All of it."),
)

PARTS = table(
    strategy=(TEXT, "How parameters, gradients and optimizer state are sharded."),
    part=(TEXT, "Of the step: they add up to it."),
    duration_ns=(INT64, "Time of it."),
    step_pct=(FLOAT64, "Share of the step."),
)

LABEL = Label(
    "plan_question",
    "What would training this model on this cluster take: time, memory, cost?",
    Bar("strategy", ("compute_ns", "exposed_comm_ns", "bubble_ns", "optimizer_ns")),
)
LEDGER_LABEL = Label(
    "plan_ledger",
    "What would a rank of this job send in a step?",
    Bar("kind", ("wire_gib",), color="phase"),
)
STAGES_LABEL = Label(
    "plan_stages",
    "What would a GPU of each stage hold?",
    Bar("stage", ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes")),
)
PARTS_LABEL = Label(
    "plan_parts", "What would a step of this job consist of?", Bar("part", ("duration_ns",))
)


def list_strategies(job: PlannedJob) -> list[PlannedJob]:
    """Return the job by each strategy that is usually compared."""
    return [replace(job, strategy=name) for name in COMPARED]


def plan_table(plans: Sequence[Plan]) -> pa.Table:
    """Return a row for each plan."""
    return rows_as(RETURNS, [_build_plan_row(p) for p in plans])


def ledger_table(plans: Sequence[Plan]) -> pa.Table:
    """Return what a rank of an inner stage sends, by kind and pass."""
    return rows_as(LEDGER, [row for p in plans for row in _list_ledger_rows(p)])


def stages_table(plans: Sequence[Plan]) -> pa.Table:
    """Return what a GPU of each stage holds at the peak."""
    return rows_as(STAGES, [row for p in plans for row in _list_stage_rows(p)])


def parts_table(plans: Sequence[Plan]) -> pa.Table:
    """Return what each step consists of."""
    return rows_as(PARTS, [row for p in plans for row in _list_part_rows(p)])


def rows_as(schema: pa.Schema, rows: Sequence[Fields]) -> pa.Table:
    """Return rows as a table of a schema. Raises for numbers that none holds."""
    try:
        columns = [
            build_texts([str(r[f.name]) for r in rows])
            if f.type == TEXT
            else pa.array([r[f.name] for r in rows], f.type)
            for f in schema
        ]
    except OverflowError:
        raise UsageError("such sizes make numbers beyond 2^63: give smaller ones") from None
    return pa.table(columns, schema=schema)


def _build_plan_row(p: Plan) -> Fields:
    parts, held = p.parts, p.memory
    (low50, high50) = p.interval(50)
    (low90, high90) = p.interval(90)
    cost, days = p.cost_per_million_tokens, p.run_days
    whole_cost = None if cost is None or p.job.run_tokens is None else cost * p.job.run_tokens / 1e6
    checkpointed = replace(p.job, checkpointing="full")
    return {
        "strategy": p.job.strategy,
        "step_time_ns": round(p.step_ns),
        "step_time_ns_lo90": round(low90),
        "step_time_ns_hi90": round(high90),
        "step_time_ns_lo50": round(low50),
        "step_time_ns_hi50": round(high50),
        "tokens_per_s": p.tokens_per_s,
        "tokens_per_s_per_gpu": p.tokens_per_s / p.job.ranks,
        "mfu_pct": 100 * p.mfu,
        "compute_ns": round(parts.compute),
        "comm_ns": round(sum(t.duration_ns for t in p.transfers)),
        "exposed_comm_ns": round(parts.exposed),
        "bubble_ns": round(parts.bubble),
        "optimizer_ns": round(parts.optimizer),
        "wire_bytes": round(sum(t.wire_bytes for t in p.transfers)),
        "parameter_bytes": round(held.parameters),
        "gradient_bytes": round(held.gradients),
        "optimizer_bytes": round(held.optimizer),
        "activation_bytes": round(held.activations + held.logits),
        "peak_memory_bytes": round(held.total),
        "allocated_bytes": round(held.held),
        "p_oom": round(p.p_oom, 4),
        "least_gpus": least_gpus(p.job),
        "least_gpus_checkpointed": least_gpus(checkpointed),
        "cost_per_million_tokens": cost,
        "run_days": days,
        "run_cost": whole_cost,
        "energy_j_per_token": p.joules_per_token,
        "unchecked": ", ".join(p.certainty.unchecked),
    }


def _list_ledger_rows(p: Plan) -> list[Fields]:
    return [
        {
            "strategy": p.job.strategy,
            "kind": t.kind,
            "phase": t.phase,
            "collective": t.collective,
            "group_size": t.ranks,
            "input_gib": t.input_bytes / 2**30,
            "wire_gib": t.wire_bytes / 2**30,
            "duration_ns": round(t.duration_ns),
        }
        for t in p.transfers
    ]


def _list_stage_rows(p: Plan) -> list[Fields]:
    rows = []
    for stage in range(p.job.pipeline_parallel):
        held = p.memory_of_stage(stage)
        rows.append(
            {
                "strategy": p.job.strategy,
                "stage": stage,
                "parameter_bytes": round(held.parameters),
                "gradient_bytes": round(held.gradients),
                "optimizer_bytes": round(held.optimizer),
                "activation_bytes": round(held.activations),
                "logit_bytes": round(held.logits),
                "reserved_bytes": round(held.total - held.held),
                "peak_memory_bytes": round(held.total),
            }
        )
    return rows


def _list_part_rows(p: Plan) -> list[Fields]:
    return [
        {
            "strategy": p.job.strategy,
            "part": name.replace("_", " "),
            "duration_ns": round(ns),
            "step_pct": 100 * ns / p.step_ns,
        }
        for name, ns in vars(p.parts).items()
    ]
