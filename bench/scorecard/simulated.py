"""Simulated jobs: predict from one of them, then simulate the other and compare.

The predictor has trace files alone: no sidecar, no configuration. Efficiencies, links, tiles and
contention are drawn from a seed, the same for a base and what is held against it; chance falls
anew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

from bench.scorecard.jobs import Change, Job, staged, step_ns
from bench.scorecard.pieces import in_pieces
from bench.scorecard.planned import planned_change, planned_ns
from bench.scorecard.score import Prediction, predicted
from htk.base.errors import HtkError
from htk.recording.simulate.instructions import Do, RankProgram
from htk.whatif.edits import all_edits
from htk.whatif.predict import predict_answer
from htk.whatif.recorded_step import Baseline

MODELS = (
    {"model": "gpt3-126m", "seq": 1024},
    {"model": "llama2-7b", "seq": 512, "layers": 8},
    {"model": "llama3-8b", "seq": 512, "layers": 4},
)
MIXTURES: tuple[dict[str, Any], ...] = (
    {"model": "gpt3-126m", "layers": 6, "ffn": 1536, "seq": 512, "experts": 8, "active_experts": 2},
    {
        "model": "mixture", "layers": 3, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn": 4096,
        "vocab": 32000, "seq": 512, "experts": 8, "active_experts": 2,
    },
)  # fmt: skip
SERVED = {"model": "llama3-8b", "layers": 16, "decode_requests": 32, "context": 1024}
_SERVER = Job(gpus_per_node=1, strategy="ddp", gpu="h100", steps=4)
_BASE = Job(nodes=2, gpus_per_node=4, strategy="full_shard", micro_batch=8, steps=4)
_COMPUTE = "gemm|nvjet|flash|elementwise|multi_tensor|CatArray|copy_out|chunk_cat"


@dataclass(frozen=True)
class Case:
    """An edit, and the job that it describes."""

    kind: str
    value: str
    change: dict[str, Any] = field(default_factory=dict)
    edits: tuple[tuple[str, str], ...] = ()  # the kind's own where none are given
    program: Change | None = None  # what becomes of the program of the job

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        return self.edits or ((self.kind, self.value),)


def hastened(program: RankProgram) -> RankProgram:
    """All compute takes four fifths as long; much less than that no GPU of its peak could do."""
    what = [
        (replace(item[0], ns=item[0].ns * 4 // 5), *item[1:])
        if do in (Do.LAUNCH, Do.NODE) and item[0].kind == "compute"
        else item
        for do, item in zip(program.do, program.what, strict=True)
    ]
    return replace(program, what=what)


def hurried(program: RankProgram) -> RankProgram:
    """The host takes half as long, its loader too."""
    return replace(program, cost=[cost // 2 for cost in program.cost])


def captured(program: RankProgram) -> RankProgram:
    """The host takes no time but to load data."""
    cost = [c if what == "data" else 0 for c, what in zip(program.cost, program.what, strict=True)]
    return replace(program, cost=cost)


def never_blocked(program: RankProgram) -> RankProgram:
    """No call waits for the GPU."""
    kept = [do != Do.SYNC for do in program.do]
    return replace(
        program,
        do=list(compress(program.do, kept)),
        cost=list(compress(program.cost, kept)),
        what=list(compress(program.what, kept)),
    )


def fed_at_once(job: RankProgram) -> RankProgram:
    """Loading data takes no time."""
    cost = [0 if what == "data" else c for c, what in zip(job.cost, job.what, strict=True)]
    return replace(job, cost=cost)


CASES = (
    Case("batch", "16", {"micro_batch": 16}),
    Case("batch", "32", {"micro_batch": 32}),
    Case("batch", "64", {"micro_batch": 64}),
    Case("batch", "4", {"micro_batch": 4}),
    Case("sharding", "shard_grad_op", {"strategy": "shard_grad_op"}),
    Case("sharding", "hybrid_shard:4", {"strategy": "hybrid_shard"}),
    Case("sharding", "ddp", {"strategy": "ddp"}),
    Case("world", "16", {"nodes": 4}),
    Case("world", "32", {"nodes": 8}),
    Case("replace", f"{_COMPUTE}=1.25x", program=hastened),
    Case("host", "2x", program=hurried),
    Case("checkpointing", "on", {"checkpointing": True}),
    Case("tp", "2", {"tensor_parallel": 2}),
    Case("no_data_wait", "on", program=fed_at_once),
    Case("no_skew", "on", {"noise": 0.0, "jitter_ns": 0}),
    Case("overlap", "serial", {"synchronous": True}),
    Case(
        "batch and sharding",
        "64, hybrid_shard:4",
        {"micro_batch": 64, "strategy": "hybrid_shard"},
        (("batch", "64"), ("sharding", "hybrid_shard:4")),
    ),
)


# Of a step that its host bounds, or nearly so: small kernels on a fast GPU.
HOST_BOUND = (
    Case("host", "2x", program=hurried),
    Case("graphs", "on", program=captured),
    Case("remove_syncs", "on", program=never_blocked),
)


def predictions(seeds: range, models: int = len(MODELS)) -> Iterator[Prediction]:
    for seed in seeds:
        for options in MODELS[:models]:
            job = replace(_BASE, **options).drawn(seed)
            yield from from_full_shard(job, (*CASES, faster_links(job), longer_sequences(job)))
            yield from from_host_bound(job)
            yield from from_straggler(job)
            yield from from_others(job)
        for sizes in MIXTURES[:models]:
            yield from from_mixture(replace(_BASE, **sizes, strategy="ddp").drawn(seed))
        yield from from_server(replace(_SERVER, **SERVED).drawn(seed))


def from_full_shard(job: Job, cases: Sequence[Case] = CASES) -> Iterator[Prediction]:
    start = staged(job)
    for case in cases:
        yield from _held(job, start, case)


def faster_links(job: Job) -> Case:
    """Twice the bandwidth, whatever it was."""
    twice = {name: 2 * getattr(job, name) for name in ("intra_gbps", "inter_gbps")}
    return Case("network", "bandwidth=2x", twice)


def longer_sequences(job: Job) -> Case:
    """Twice as many tokens."""
    return Case("seq", "2x", {"seq": 2 * job.seq})


def from_host_bound(job: Job) -> Iterator[Prediction]:
    small = replace(job, micro_batch=1, gpu="h100")
    start = staged(small)
    for case in HOST_BOUND:
        yield from _held(small, start, case)


def from_straggler(job: Job) -> Iterator[Prediction]:
    """One GPU is slow; what if it were not?"""
    rank = job.seed % job.ranks
    slow = replace(job, plants=(f"straggler:rank={rank}",))
    yield from _held(slow, staged(slow), Case("fix_rank", str(rank), {"plants": ()}))


def from_others(job: Job) -> Iterator[Prediction]:
    """From other strategies, tensor parallelism, several micro-batches, and FSDP1."""
    for strategy, to in (("hybrid_shard", "full_shard"), ("ddp", "full_shard")):
        base = replace(job, strategy=strategy)
        yield from _held(base, staged(base), Case("sharding", to, {"strategy": to}))
    split = replace(job, tensor_parallel=2)
    start = staged(split)
    yield from _held(split, start, Case("batch", "32", {"micro_batch": 32}))
    yield from _held(split, start, Case("tp", "4", {"tensor_parallel": 4}))
    yield from from_pieces(job)
    yield from from_small_steps(job)
    yield from from_long_sequences(job)
    many = replace(job, accumulation=2)
    more = Case("accumulation", "4", {"accumulation": 4})
    yield from _held(many, staged(many), more)
    first = replace(job, fsdp=1)
    hybrid = Case("sharding", "hybrid_shard:4", {"strategy": "hybrid_shard"})
    batch = Case("batch", "64", {"micro_batch": 64})
    start = staged(first)
    for case in (hybrid, batch):
        yield from _held(first, start, case)


def from_mixture(job: Job) -> Iterator[Prediction]:
    """Experts over four ranks: what if over others, or if all of them got as many tokens?"""
    even = replace(job, expert_parallel=4)
    start = staged(even)
    for ranks in (2, 8):
        yield from _held(even, start, Case("ep", str(ranks), {"expert_parallel": ranks}))
    uneven = replace(even, expert_skew=0.4)
    alike = Case("balanced_experts", "on", {"expert_skew": 0.0})
    yield from _held(uneven, staged(uneven), alike)


def from_server(job: Job) -> Iterator[Prediction]:
    """Answers to other numbers of requests, of other lengths."""
    start = staged(job)
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("requests=2x", {"decode_requests": 2 * job.decode_requests}),
        ("requests=8x", {"decode_requests": 8 * job.decode_requests}),
        ("requests=0.25x", {"decode_requests": job.decode_requests // 4}),
        ("context=4x", {"context": 4 * job.context}),
    )
    for value, change in cases:
        yield from _held(job, start, Case("serving", value, change))


def from_long_sequences(job: Job) -> Iterator[Prediction]:
    """What if ranks shared them?"""
    long = replace(job, seq=4 * job.seq, micro_batch=2)
    start = staged(long)
    for ranks in (2, 4):
        yield from _held(long, start, Case("cp", str(ranks), {"context_parallel": ranks}))


def from_pieces(job: Job) -> Iterator[Prediction]:
    """Products and all-reduces of four ranks that share each layer, in pieces."""
    shared = replace(job, tensor_parallel=4)
    start = staged(shared)
    for count in (2, 4):
        case = Case("split", f"tensor={count}", program=in_pieces(shared, count))
        yield from _held(shared, start, case)


def from_small_steps(job: Job) -> Iterator[Prediction]:
    """Edits of what communication waits for, and of the type of matrix products."""
    buckets = replace(job, strategy="ddp", micro_batch=4)
    single = replace(job, precision="tf32", micro_batch=4)
    sharded = replace(job, micro_batch=2)
    cases = {
        buckets: [Case("bucket", f"{mb}MB", {"bucket_bytes": mb << 20}) for mb in (10, 100)],
        single: [Case("precision", "bf16", {"precision": "bf16"})],
        sharded: [Case("prefetch_depth", str(k), {"gathers_ahead": k}) for k in (0, 1)],
    }
    for base, asked in cases.items():
        start = staged(base)
        for case in asked:
            yield from _held(base, start, case)


def _held(job: Job, start: Baseline, case: Case) -> Iterator[Prediction]:
    edit_names = {e.NAME for e in all_edits()}
    if not {name for name, _ in case.asked} <= edit_names:
        return
    changed = replace(job, **case.change)
    truth = step_ns(replace(changed, run=1), case.program)
    label = f"{job.model}, seed {job.seed}: {job.strategy} → {case.value}"
    base, names = float(start.graph.period_ns), tuple(name for name, _ in case.asked)
    change = planned_change(
        planned_ns(job, job.accumulation), planned_ns(changed, changed.accumulation)
    )
    plan = None if change is None else base * change
    try:
        answer = predict_answer(start, case.asked)
    except HtkError as error:
        yield Prediction(
            "trace", case.kind, label, str(job.seed), f"refused: {error}", base, truth, base, None,
            0.0, names, planned_ns=plan,
        )  # fmt: skip
        return
    prediction = predicted("trace", case.kind, label, str(job.seed), answer, truth)
    yield replace(prediction, planned_ns=plan)
