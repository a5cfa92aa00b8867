"""Hold what-ifs to jobs that were made with the edit and without it: time, memory, intervals.

    python -m bench.whatif_pairs [--gpu] [--write] [--json FILE]

Simulated pairs are made here, both ways; `--gpu` adds the steps measured on an H100 (bench/gpu).
`--write` renews docs/whatif_scorecard.md, with both.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.gpu.score import RECORDED, list_pairs, predict_pair
from bench.scorecard.jobs import Job
from htk.base.errors import UsageError
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import plan
from htk.recording.simulate.config import check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from htk.whatif.recorded_step import Baseline

PAGE = Path(__file__).parents[1] / "docs/whatif_scorecard.md"
BASE = Job(
    model="pairs", layers=8, hidden=2048, heads=16, ffn=8192, vocab=32000, gpu="a100-80gb",
    nodes=1, gpus_per_node=8, strategy="ddp", micro_batch=4, seq=2048, steps=3, stacks=False,
)  # fmt: skip
SIZED = {"hidden": 4096, "heads": 32, "layers": 4, "gpus_per_node": 4}
FOUR_TO_A_NODE = {"nodes": 2, "gpus_per_node": 4}
TP_BESIDE = FOUR_TO_A_NODE | {"tensor_parallel": 2}
PP_BESIDE = FOUR_TO_A_NODE | {"pipeline_parallel": 2, "accumulation": 4}
SLOW_NODES = SIZED | {"nodes": 2, "inter_gbps": 25.0}
LAUNCH_BOUND = {"hidden": 512, "heads": 8, "ffn": 2048, "micro_batch": 1, "seq": 512}
JOBS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp": {"strategy": "full_shard"},
    "zero 2": {"strategy": "shard_grad_op"},
    "one GPU": {"gpus_per_node": 1},
    "one GPU, fsdp": {"gpus_per_node": 1, "strategy": "full_shard"},
    "one GPU, zero 2": {"gpus_per_node": 1, "strategy": "shard_grad_op"},
    "two nodes": {"nodes": 2},
    "two nodes of one": {"nodes": 2, "gpus_per_node": 1},
    "two nodes of four": FOUR_TO_A_NODE,
    "two nodes, batch 2": {"nodes": 2, "micro_batch": 2},
    "batch 8": {"micro_batch": 8},
    "length 4096": {"seq": 4096},
    "batch 8, length 1024": {"micro_batch": 8, "seq": 1024},
    "2 micro-batches": {"accumulation": 2},
    "4 micro-batches": {"accumulation": 4},
    "8 micro-batches": {"accumulation": 8},
    "4 micro-batches, fsdp": {"accumulation": 4, "strategy": "full_shard"},
    "4 micro-batches, zero 2": {"accumulation": 4, "strategy": "shard_grad_op"},
    "tp 2": {"tensor_parallel": 2},
    "tp 4": {"tensor_parallel": 4},
    "tp 4, sp": {"tensor_parallel": 4, "sequence_parallel": True},
    "tp 2, two nodes": {"tensor_parallel": 2, "nodes": 2},
    "cp 2": {"context_parallel": 2},
    "cp 4": {"context_parallel": 4},
    "cp 2, length 4096": {"context_parallel": 2, "seq": 4096},
    "tp 2, cp 2": {"tensor_parallel": 2, "context_parallel": 2},
    "tp 2, cp 2, length 1024": {"tensor_parallel": 2, "context_parallel": 2, "seq": 1024},
    "pp 2": {"pipeline_parallel": 2, "accumulation": 4},
    "pp 4": {"pipeline_parallel": 4, "accumulation": 8},
    "pp 2, tp 2": {"pipeline_parallel": 2, "accumulation": 4, "tensor_parallel": 2},
    "pp 2, cp 2": {"pipeline_parallel": 2, "accumulation": 4, "context_parallel": 2},
    "tp 2, 2 micro-batches": {"accumulation": 2, "tensor_parallel": 2},
    "cp 2, 2 micro-batches": {"accumulation": 2, "context_parallel": 2},
    "checkpointed": {"checkpointing": True},
    "checkpointed, batch 16": {"checkpointing": True, "micro_batch": 16},
    "tf32": {"precision": "tf32"},
    "fp32": {"precision": "fp32"},
    "wide ddp": SIZED,
    "wide fsdp": SIZED | {"strategy": "full_shard"},
    "wide ddp, two nodes": SIZED | {"nodes": 2},
    "wide fsdp, two nodes": SIZED | {"nodes": 2, "strategy": "full_shard"},
    "wide ddp, two slow nodes": SLOW_NODES,
    "wide fsdp, two slow nodes": SLOW_NODES | {"strategy": "full_shard"},
    "wide hybrid, two slow nodes": SLOW_NODES | {"strategy": "hybrid_shard"},
    "tp 2, two nodes of four": TP_BESIDE,
    "tp 2, two nodes of four, fsdp": TP_BESIDE | {"strategy": "full_shard"},
    "tp 2, two nodes of four, hybrid": TP_BESIDE | {"strategy": "hybrid_shard"},
    "pp 2, two nodes of four": PP_BESIDE,
    "pp 2, two nodes of four, fsdp": PP_BESIDE | {"strategy": "full_shard"},
    "pp 2, two nodes of four, zero 2": PP_BESIDE | {"strategy": "shard_grad_op"},
    "length 1024": {"seq": 1024},
    "length 1024, attention in parts": {"seq": 1024, "attention": "materialised"},
    "fused loss": {"fused_loss": True},
    "optimizer in parts": {"optimizer": "adam-foreach"},
    "8-bit optimizer": {"optimizer": "adam-8bit"},
    "adapters of rank 16": {"lora_rank": 16},
    "4 micro-batches, each reduced": {"accumulation": 4, "no_sync": False},
    "8 micro-batches, each reduced": {"accumulation": 8, "no_sync": False},
    "wide ddp, 4 micro-batches": SLOW_NODES | {"accumulation": 4},
    "wide ddp, 4 micro-batches, each reduced": SLOW_NODES | {"accumulation": 4, "no_sync": False},
    "wide ddp, two slow nodes, buckets of 100 MB": SLOW_NODES | {"bucket_bytes": 100 << 20},
    "wide ddp, two slow nodes, buckets of 10 MB": SLOW_NODES | {"bucket_bytes": 10 << 20},
    "wide ddp, two slow nodes, 8-bit gradients": SLOW_NODES | {"gradients_sent": 0.5},
    "wide fsdp, two slow nodes, one ahead": SLOW_NODES
    | {"strategy": "full_shard", "gathers_ahead": 1},
    "wide fsdp, two slow nodes, none ahead": SLOW_NODES
    | {"strategy": "full_shard", "gathers_ahead": 0},
    "starved": {"plants": ("starved_loader:ms=120",)},
    "launch-bound": LAUNCH_BOUND,
    "launch-bound, graphs": LAUNCH_BOUND | {"graphs": True},
    "experts over 2": {"experts": 8, "active_experts": 2, "ffn": 2048, "expert_parallel": 2},
    "experts over 4": {"experts": 8, "active_experts": 2, "ffn": 2048, "expert_parallel": 4},
}
# Jobs that are made once more with collectives on the stream of the compute.
IN_TURN = (
    "ddp", "fsdp", "zero 2", "tp 2", "4 micro-batches, fsdp", "wide ddp, two slow nodes",
    "wide fsdp, two slow nodes", "wide fsdp, two nodes",
)  # fmt: skip
JOBS |= {f"{name}, in turn": JOBS[name] | {"synchronous": True} for name in IN_TURN}
SLOW = "network=inter_gbps=8.3"  # 25 GB/s of four GPUs, of which three quarters are achieved
PAIRS = (
    "ddp > cp=2 > cp 2", "cp 2 > cp=1 > ddp", "cp 2 > cp=4 > cp 4", "cp 4 > cp=2 > cp 2",
    "cp 2 > seq=4096 > cp 2, length 4096", "tp 2, cp 2 > seq=0.5x > tp 2, cp 2, length 1024",
    "pp 2, tp 2 > tp=1 > pp 2", "pp 2 > tp=2 > pp 2, tp 2", "pp 2, cp 2 > cp=1 > pp 2",
    "tp 2, 2 micro-batches > pp=2 > pp 2, tp 2", "cp 2, 2 micro-batches > pp=2 > pp 2, cp 2",
    "cp 2 > tp=2 > tp 2, cp 2", "tp 2, cp 2 > tp=1 > cp 2", "tp 2, cp 2 > cp=1 > tp 2",
    "cp 4 > cp=1 > ddp", "ddp > cp=4 > cp 4", "ddp > tp=2 > tp 2", "tp 2 > tp=1 > ddp",
    "tp 2 > tp=4 > tp 4", "tp 4 > tp=2 > tp 2", "tp 4 > sp=on > tp 4, sp",
    "tp 4, sp > sp=off > tp 4", "ddp > tp=4 sp=on > tp 4, sp", "tp 4, sp > tp=1 > ddp",
    "2 micro-batches > pp=2 > pp 2", "pp 2 > pp=1 > 2 micro-batches",
    "2 micro-batches > pp=4 > pp 4", "pp 4 > pp=1 > 2 micro-batches",
    "ddp > accumulation=4 > 4 micro-batches", "4 micro-batches > accumulation=1 > ddp",
    "4 micro-batches > accumulation=2x > 8 micro-batches",
    "8 micro-batches > accumulation=global=128 > 4 micro-batches",
    "ddp > batch=2x > batch 8", "batch 8 > batch=4 > ddp", "ddp > seq=4096 > length 4096",
    "length 4096 > seq=0.5x > ddp", "ddp > batch=2x seq=0.5x > batch 8, length 1024",
    "batch 8, length 1024 > batch=0.5x seq=2x > ddp", "ddp > checkpointing=on > checkpointed",
    "checkpointed > checkpointing=off > ddp",
    "ddp > checkpointing=on batch=4x > checkpointed, batch 16",
    "checkpointed, batch 16 > checkpointing=off batch=0.25x > ddp",
    "checkpointed > batch=4x > checkpointed, batch 16", "ddp > precision=tf32 > tf32",
    "tf32 > precision=bf16 > ddp", "ddp > precision=fp32 > fp32",
    "fp32 > precision=bf16 > ddp", "tf32 > precision=fp32 > fp32",
    "ddp > sharding=full_shard > fsdp",
    "fsdp > sharding=ddp > ddp", "ddp > sharding=shard_grad_op > zero 2",
    "zero 2 > sharding=full_shard > fsdp", "fsdp > sharding=shard_grad_op > zero 2",
    "ddp > world=2x8 > two nodes", "two nodes > world=1x8 > ddp",
    "two nodes of one > world=2x4 > two nodes of four",
    "ddp > world=2x8 batch=global=32 > two nodes, batch 2",
    "two nodes, batch 2 > world=1x8 batch=global=32 > ddp", "ddp > world=1 > one GPU",
    "fsdp > world=1 > one GPU", "one GPU > world=8 > ddp", "one GPU > world=2x8 > two nodes",
    "one GPU > world=8 sharding=full_shard > fsdp", "one GPU, fsdp > world=8 > fsdp",
    "one GPU, zero 2 > world=8 > zero 2", "one GPU, fsdp > world=8 sharding=ddp > ddp",
    "one GPU > world=8 tp=2 > tp 2",
    "ddp > world=2x8 tp=2 > tp 2, two nodes", "tp 2 > world=2x8 > tp 2, two nodes",
    "wide ddp > world=2x4 > wide ddp, two nodes", "wide fsdp > world=2x4 > wide fsdp, two nodes",
    "wide ddp > world=2x4 > wide ddp, two slow nodes",
    f"wide ddp > world=2x4 {SLOW} > wide ddp, two slow nodes",
    f"wide fsdp > world=2x4 {SLOW} > wide fsdp, two slow nodes",
    f"wide fsdp, two nodes > {SLOW} > wide fsdp, two slow nodes",
    "wide fsdp, two slow nodes > sharding=hybrid_shard:4 > wide hybrid, two slow nodes",
    "wide hybrid, two slow nodes > sharding=full_shard > wide fsdp, two slow nodes",
    "wide ddp, two slow nodes > sharding=full_shard > wide fsdp, two slow nodes",
    "tp 2, two nodes of four, fsdp > sharding=ddp > tp 2, two nodes of four",
    "tp 2, two nodes of four > sharding=full_shard > tp 2, two nodes of four, fsdp",
    "tp 2, two nodes of four > sharding=hybrid_shard:2 > tp 2, two nodes of four, hybrid",
    "tp 2, two nodes of four, hybrid > sharding=full_shard > tp 2, two nodes of four, fsdp",
    "tp 2, two nodes of four, hybrid > sharding=ddp > tp 2, two nodes of four",
    "4 micro-batches, fsdp > sharding=ddp > 4 micro-batches",
    "4 micro-batches > sharding=full_shard > 4 micro-batches, fsdp",
    "4 micro-batches, zero 2 > sharding=full_shard > 4 micro-batches, fsdp",
    "4 micro-batches, fsdp > sharding=shard_grad_op > 4 micro-batches, zero 2",
    "pp 2, two nodes of four, fsdp > sharding=ddp > pp 2, two nodes of four",
    "pp 2, two nodes of four, zero 2 > sharding=ddp > pp 2, two nodes of four",
    "pp 2, two nodes of four, zero 2 > sharding=full_shard > pp 2, two nodes of four, fsdp",
    "pp 2, two nodes of four > sharding=full_shard > pp 2, two nodes of four, fsdp",
    "length 1024, attention in parts > attention=flash > length 1024",
    "ddp > loss=fused > fused loss", "optimizer in parts > optimizer=fused > ddp",
    "optimizer in parts > optimizer=8bit > 8-bit optimizer",
    "ddp > optimizer=8bit > 8-bit optimizer", "ddp > lora=16 > adapters of rank 16",
    "4 micro-batches, each reduced > no_sync=on > 4 micro-batches",
    "4 micro-batches > no_sync=off > 4 micro-batches, each reduced",
    "4 micro-batches, each reduced > accumulation=8 > 8 micro-batches, each reduced",
    "wide ddp, 4 micro-batches, each reduced > no_sync=on > wide ddp, 4 micro-batches",
    "wide ddp, 4 micro-batches > no_sync=off > wide ddp, 4 micro-batches, each reduced",
    "wide ddp, two slow nodes > bucket=100MB > wide ddp, two slow nodes, buckets of 100 MB",
    "wide ddp, two slow nodes > bucket=10MB > wide ddp, two slow nodes, buckets of 10 MB",
    "wide ddp, two slow nodes > gradients=0.5x > wide ddp, two slow nodes, 8-bit gradients",
    "wide fsdp, two slow nodes > prefetch_depth=1 > wide fsdp, two slow nodes, one ahead",
    "wide fsdp, two slow nodes > prefetch_depth=0 > wide fsdp, two slow nodes, none ahead",
    "wide fsdp, two slow nodes, none ahead > prefetch_depth=2 > wide fsdp, two slow nodes",
    "starved > workers=2x > ddp", "starved > no_data_wait=on > ddp",
    "launch-bound > graphs=on > launch-bound, graphs",
    *(f"{name}, in turn > overlap=realistic > {name}" for name in IN_TURN),
    "experts over 2 > ep=4 > experts over 4", "experts over 4 > ep=2 > experts over 2",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One prediction beside the job that it is of; None: refused, or not known."""

    road: str
    before: str
    edits: str
    after: str
    truth_ms: float
    predicted_ms: float | None
    low_ms: float | None
    high_ms: float | None
    truth_gib: float | None
    predicted_gib: float | None
    refusal: str = ""
    planned_gib: float | None = None  # of `htk plan`, without a recording

    @property
    def miss_pct(self) -> float | None:
        return percent_off(self.predicted_ms, self.truth_ms)

    @property
    def memory_miss_pct(self) -> float | None:
        return percent_off(self.predicted_gib, self.truth_gib)

    @property
    def plan_miss_pct(self) -> float | None:
        """By how many percent the plan's memory of the job is off the what-if's."""
        return percent_off(self.planned_gib, self.predicted_gib)

    @property
    def is_held(self) -> bool:
        low, high = self.low_ms, self.high_ms
        return low is not None and high is not None and low <= self.truth_ms <= high


def percent_off(predicted: float | None, truth: float | None) -> float | None:
    """Return by how many percent a prediction is off; None: one of both is not known."""
    if predicted is None or not truth:
        return None
    return 100 * (predicted / truth - 1)


@cache
def start_from(name: str) -> Baseline:
    """Return what predictions from a simulated job start from."""
    with TemporaryDirectory() as folder:
        simulate_job(check_config(replace(BASE, **JOBS[name])), Path(folder))
        return build_baseline(open_trace(folder, OpenOptions(cache=False)).tables)


def planned_gib(name: str) -> float | None:
    """Return the memory of tensors that a plan expects; None: it describes no such job."""
    config = replace(BASE, **JOBS[name])
    try:
        job = PlannedJob(
            config.decoder,
            config.device,
            config.nodes,
            config.gpus_per_node,
            config.micro_batch,
            config.seq,
            "full" if config.checkpointing else "none",
            accumulation=config.accumulation,
            tensor_parallel=config.tensor_parallel,
            strategy=config.strategy,
            pipeline_parallel=config.pipeline_parallel,
            context_parallel=config.context_parallel,
            expert_parallel=config.expert_parallel,
            sequence_parallel=config.sequence_parallel,
            precision=config.precision,
            optimizer=config.optimizer.removesuffix("-foreach"),
            lora_rank=config.lora_rank,
            kernels="compiled",  # norms are one kernel, gates are kept
            attention=config.attention,
            fused_loss=config.fused_loss,
        )
    except UsageError:
        return None
    return plan(job).memory.held / 2**30


def read_pair(text: str) -> tuple[str, list[tuple[str, str]], str]:
    """Return the job before, the edits and the job after."""
    before, edits, after = text.split(" > ")
    pairs = [edit.partition("=") for edit in edits.split(" ")]
    return before, [(name, value) for name, _, value in pairs], after


def simulated_rows(pairs: Sequence[str] = PAIRS) -> Iterator[Row]:
    for text in pairs:
        before, edits, after = read_pair(text)
        truth = start_from(after)
        peaks = None if truth.memory is None else truth.memory.peaks
        row = Row(
            "simulated",
            before,
            " ".join(f"--{name} {value}" for name, value in edits),
            after,
            truth.step_ns / 1e6,
            None, None, None,
            None if peaks is None else peaks.highest / 2**30,
            None,
            planned_gib=planned_gib(after),
        )  # fmt: skip
        try:
            answer = predict_answer(start_from(before), edits)
        except UsageError as error:
            yield replace(row, refusal=str(error))
            continue
        low, high = answer.intervals[2:]
        if answer.step_ns is None or low is None or high is None:
            yield replace(row, refusal=answer.verdict)
            continue
        yield replace(
            row,
            predicted_ms=answer.step_ns / 1e6,
            low_ms=low / 1e6,
            high_ms=high / 1e6,
            predicted_gib=None if answer.peak is None else answer.peak.allocated / 2**30,
        )


def measured_rows() -> Iterator[Row]:
    """Return the predictions of steps that were measured on an H100."""
    for before, after, edits in list_pairs(RECORDED):
        p = predict_pair(before, after, edits)
        yield Row(
            "measured", p.before, p.edit, p.after, p.measured_ms, p.predicted_ms, p.lo90_ms,
            p.hi90_ms, p.measured_gib, p.predicted_gib, p.reason,
        )  # fmt: skip


def sum_up(rows: Sequence[Row]) -> str:
    """Return medians, ninetieth percentiles and how often intervals held, in a sentence."""
    times = sorted(abs(row.miss_pct) for row in rows if row.miss_pct is not None)
    memory = sorted(abs(m) for row in rows if (m := row.memory_miss_pct) is not None)
    if not times:
        return "none was answered"
    held = sum(row.is_held for row in rows if row.miss_pct is not None)
    words = f"{len(times)} of {len(rows)} answered: time {_spread(times)}, intervals of 90 % held "
    words += f"{held} ({100 * held / len(times):.0f} %)"
    return f"{words}; memory {_spread(memory)}" if memory else words


def compare_plans(rows: Sequence[Row]) -> str:
    """Return how far memory of plans is from that of what-ifs, of the jobs of both."""
    misses = sorted(abs(miss) for row in rows if (miss := row.plan_miss_pct) is not None)
    if not misses:
        return "- memory of `htk plan`: of none of these jobs."
    return (
        f"- memory of `htk plan` for the edited job, without a recording: {len(misses)} jobs, "
        f"{_spread(misses)} from the what-if's, at most {misses[-1]:.1f} %."
    )


def _spread(misses: Sequence[float]) -> str:
    ninth = misses[round(0.9 * (len(misses) - 1))]
    return f"{statistics.median(misses):.1f} % off at the median, {ninth:.1f} % at the 90th"


def write_page(rows: Sequence[Row]) -> str:
    """Return the page: what the pairs are, both summaries, and every simulated pair."""
    by_road: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_road[row.road].append(row)
    lines = [
        "# What-ifs, pair by pair",
        "",
        "Each job was made once as it is and once with the edit: the recording of the first was",
        "given to `htk whatif`, the second is the truth. This page is a run of",
        "`python -m bench.whatif_pairs --write`; `--gpu` adds steps of an H100. Simulator",
        "and predictor share their view of how steps work, though no model of time. Intervals are",
        "learned on the [scorecard](scorecard.md), from published steps: these have no recording,",
        "and what stands in for one misses too. They hold nine of ten of them, and more where a",
        "prediction starts from a recording, as here.",
        "",
    ]
    lines += [f"- {road}: {sum_up(of_road)}." for road, of_road in sorted(by_road.items())]
    lines.append(compare_plans(by_road["simulated"]))
    lines += [
        "",
        "| recording | edit | predicted | 90 % interval | truth | time | memory |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in by_road["simulated"]:
        cells = ["refused", "", f"{row.truth_ms:.1f} ms", "", ""]
        if row.predicted_ms is not None:
            held = "" if row.is_held else " (missed)"
            cells = [
                f"{row.predicted_ms:.1f} ms",
                f"{row.low_ms:.1f} … {row.high_ms:.1f}{held}",
                f"{row.truth_ms:.1f} ms",
                f"{row.miss_pct:+.1f} %",
                "" if row.memory_miss_pct is None else f"{row.memory_miss_pct:+.1f} %",
            ]
        lines.append(f"| {' | '.join([row.before, f'`{row.edits}`', *cells])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpu", action="store_true", help="with steps measured on an H100")
    parser.add_argument("--write", action="store_true", help="renew the page")
    parser.add_argument("--json", type=Path, help="file to write every row to")
    args = parser.parse_args()
    rows = []
    for row in chain(simulated_rows(), measured_rows() if args.gpu else ()):
        rows.append(row)
        print(row.road, row.before, row.edits, row.truth_ms, row.miss_pct, row.memory_miss_pct,
              row.plan_miss_pct,
              "held" if row.is_held else "MISSED", row.refusal, flush=True)  # fmt: skip
    print(sum_up(rows))
    print(compare_plans(rows))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if args.write:
        PAGE.write_text(write_page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
