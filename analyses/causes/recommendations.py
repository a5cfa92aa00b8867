"""What to change first, by the time that it would win back."""

import json
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.columns.arrow import codes_of, matching, number, numbers, texts, truths, valid
from htk.columns.types import Ints
from htk.core.analysis import analysis, with_coverage
from htk.core.chart import Bar
from htk.core.humanize import format_duration, pluralize
from htk.derived.unrecorded import unrecorded_ranks
from htk.models.detected import Device, common_device
from htk.names.kinds import kind_of
from htk.schema import TEXT, table

RETURNS = table(
    finding=(TEXT, "What is wrong."),
    evidence=(TEXT, "What shows it."),
    advice=(TEXT, "What to try."),
    gain_ns=(pa.int64(), "At most so much of a rank's recorded time; null: not a matter of time."),
    gain_pct=(pa.float64(), "That, of the recorded window."),
    analysis=(TEXT, "The analysis that shows it."),
)

SMALL_COPY_BYTES = 64 << 10
MANY_COPIES = 100
FULL_PCT = 90.0  # of the GPU's memory: the next longer batch may not fit
FEW_BLOCKS = 1.0  # blocks for each multiprocessor: below it some have none
UNEVEN_PCT = 5.0  # compute of the busiest rank beyond the mean; less is the noise of GPUs
TENSOR_CORE_GAIN = 0.5  # at least twice the rate on every GPU since Volta

# Causes of idle time, what they mean, what to do; "host" is several of them.
_IDLE = (
    (
        ("host_data_loading",),
        "the GPU waits for data",
        "more DataLoader workers, prefetch_factor, pin_memory, persistent_workers; "
        "move decoding off the main thread",
    ),
    (
        ("host_operator", "host_python", "launch_latency"),
        "launch-bound: the host launches slower than the GPU works",
        "torch.compile or CUDA graphs, larger batches, fused or foreach operators; "
        "take Python work out of the step",
    ),
    (
        ("host_allocation",),
        "memory is allocated from the driver inside the step",
        "expandable_segments:True, allocate once, leave reserve memory to the caching allocator",
    ),
    (
        ("host_gc",),
        "Python collects garbage in the step",
        "gc.disable(), and collect between steps",
    ),
    (
        ("host_compilation",),
        "code is compiled in the recorded steps",
        "record after warm-up; mark dynamic shapes, look at recompiles (TORCH_LOGS=recompiles)",
    ),
    (
        ("host_start_up",),
        "the recording holds the start-up of the job",
        "record after warm-up (schedule(wait=…, warmup=…)): contexts, streams, handles and first "
        "launches cost this once, not in every step",
    ),
    (
        ("host_lazy_loading",),
        "kernels are loaded in the recorded steps",
        "record after warm-up, or CUDA_MODULE_LOADING=EAGER",
    ),
    (
        ("stream_event_wait",),
        "streams wait for events while the device is idle",
        "look at what records the event late; fewer streams, or events recorded sooner",
    ),
    (
        ("unrecorded_gpu_work_suspected",),
        "a call blocks while nothing recorded runs: the recording lacks GPU work",
        "do not read this as idle time: see whether another process or an unprofiled library "
        "uses the GPU, and record a longer window",
    ),
    (
        ("profiler_overhead",),
        "the profiler itself holds the GPU up",
        "record fewer steps, without stacks and memory",
    ),
)


class _Found(NamedTuple):
    finding: str
    evidence: str
    advice: str
    gain: int | None
    analysis: str


@analysis(returns=RETURNS, chart=Bar("finding", "gain_ns", horizontal=True))
def recommendations(
    time_breakdown: pa.Table,
    idle_breakdown: pa.Table,
    host_stalls: pa.Table,
    kernels: pa.Table,
    aligned_matches: pa.Table,
    collectives: pa.Table,
    memory: pa.Table,
    ranks: pa.Table,
    kernel_passes: pa.Table,
    *,
    min_pct: Annotated[float, "Leave out what would win back less of the time."] = 1.0,
) -> pa.Table:
    """What should be changed first, and how much time would it win back at most?

    Gains are upper bounds, each the mean over ranks of time in the recorded window. Those of idle
    time are disjoint; those of kernels may overlap one another, and ranks that compute unequally
    are why others wait for late ranks.
    """
    lanes = max(time_breakdown.num_rows, 1)
    window = int(numbers(time_breakdown["total_ns"]).sum()) // lanes
    findings = [
        *_idle(idle_breakdown, lanes, _after_blocking_calls(host_stalls, idle_breakdown)),
        *_stalls(host_stalls, idle_breakdown, lanes),
        *_communication(time_breakdown, collectives, aligned_matches, ranks, lanes),
        *_imbalance(time_breakdown),
        *_kernels(kernels, common_device(ranks), lanes),
        *_copies(time_breakdown, kernels, lanes),
        *_recompute(kernels, truths(kernel_passes["recomputed"]), lanes),
        *_memory(memory, ranks),
    ]
    kept = [
        f for f in findings if f.gain is None or (window > 0 and 100 * f.gain >= min_pct * window)
    ]
    kept.sort(key=lambda f: -1 if f.gain is None else -f.gain)
    gain = np.array([f.gain or 0 for f in kept], np.int64)
    timed = np.array([f.gain is not None for f in kept], bool)
    answer = pa.table(
        [
            texts([f.finding for f in kept]),
            texts([f.evidence for f in kept]),
            texts([f.advice for f in kept]),
            number(gain, pa.int64(), timed),
            number(100.0 * gain / max(window, 1), pa.float64(), timed),
            texts([f.analysis for f in kept]),
        ],
        schema=RETURNS,
    )
    return with_coverage(answer, recorded_window_ns=window, rules=len(_IDLE) + 10)


def _idle(idle: pa.Table, lanes: int, elsewhere: int) -> list[_Found]:
    """Causes of idle time; `elsewhere`: of the host's own, what blocking calls answer for."""
    codes, names = codes_of(idle["cause"])
    total = np.bincount(codes, numbers(idle["idle_ns"]), minlength=len(names)).astype(np.int64)
    gaps = np.bincount(codes, numbers(idle["count"]), minlength=len(names)).astype(np.int64)
    of = {n: (int(t), int(c)) for n, t, c in zip(names.to_pylist(), total, gaps, strict=True)}
    findings = []
    for causes, finding, advice in _IDLE:
        lost = sum(of.get(cause, (0, 0))[0] for cause in causes)
        if "host_operator" in causes:
            lost = max(lost - elsewhere, 0)
        if not lost:
            continue
        parts = [
            f"{c} {format_duration(of[c][0] / lanes)} in {of[c][1]} gaps" for c in causes if c in of
        ]
        evidence = "GPU idle: " + ", ".join(parts)
        findings.append(_Found(finding, evidence, advice, lost // lanes, "idle_breakdown"))
    return findings


def _after_blocking_calls(stalls: pa.Table, idle: pa.Table) -> int:
    """Return the idle time after blocking calls, until the next launch arrived: the host works
    then, but the call is why the GPU has nothing queued."""
    blocked = matching(idle["cause"], lambda c: c in ("host_sync", "unrecorded_gpu_work_suspected"))
    caused = int(numbers(stalls["gpu_idle_caused_ns"])[_is_blocking(stalls)].sum())
    return max(caused - int(numbers(idle["idle_ns"])[blocked].sum()), 0)


def _is_blocking(stalls: pa.Table) -> NDArray[np.bool_]:
    return matching(
        stalls["cause"], lambda c: c in ("synchronising call", ".item", "copy that blocks")
    )


def _stalls(stalls: pa.Table, idle: pa.Table, lanes: int) -> list[_Found]:
    """Blocking calls in the step, by what they left idle beside unrecorded work."""
    unrecorded = matching(idle["cause"], "unrecorded_gpu_work_suspected".__eq__)
    elsewhere = int(numbers(idle["idle_ns"])[unrecorded].sum())
    chosen = stalls.filter(pa.array(_is_blocking(stalls)))
    caused = numbers(chosen["gpu_idle_caused_ns"])
    if caused.sum() <= elsewhere:
        return []
    worst = chosen.slice(int(caused.argmax()), 1).to_pylist()[0]
    where = f" in {worst['stack']}" if worst["stack"] else ""
    calls = int(numbers(chosen["count"]).sum())
    return [
        _Found(
            "synchronising calls drain the GPU",
            f"{calls} calls; the worst, {worst['name']}{where}, {worst['count']} times",
            "keep values on the GPU (no .item, no print of tensors), copy from pinned memory with "
            "non_blocking=True, log every n steps",
            (int(caused.sum()) - elsewhere) // lanes,
            "host_stalls",
        )
    ]


def _communication(
    times: pa.Table, collectives: pa.Table, matches: pa.Table, ranks: pa.Table, lanes: int
) -> list[_Found]:
    """Exposed communication: waiting for late ranks, or bytes that take their time."""
    exposed, comm = (int(numbers(times[c]).sum()) for c in ("exposed_comm_ns", "comm_ns"))
    if not exposed:
        return []
    matched = valid(matches["wait_ns"])
    columns = ("wait_ns", "transfer_ns", "undetermined_ns")
    wait, moved, unknown = (int(numbers(matches[c]).sum()) for c in columns)
    total = wait + moved + unknown
    shares = [part / total if total else 0.0 for part in (wait, unknown)]
    gains = [int(exposed * share) // lanes for share in shares]
    findings = []
    if matched.any():
        blamed = numbers(collectives["rank"], -1)[truths(matches["blamed"])]
        who = f"; most often rank {np.bincount(blamed).argmax()}" if len(blamed) else ""
        hint = "" if unknown else "; faster links would not help"
        findings.append(
            _Found(
                "ranks wait for late ranks",
                f"{100 * shares[0]:.0f} % of collective time is waiting{who}",
                "balance the work (tokens, images, pipeline stages) and look at the late rank's "
                f"host{hint}",
                gains[0],
                "stragglers",
            )
        )
    if unknown:
        findings.append(_undetermined(ranks, shares[1], gains[1]))
    hidden = 100 * (comm - exposed) / comm
    findings.append(
        _Found(
            "communication is exposed",
            f"{format_duration(exposed / lanes)} of {format_duration(comm / lanes)} exposed "
            f"({hidden:.0f} % hidden)",
            "prefetch (FSDP), larger or smaller buckets (DDP), overlap with compute, "
            "fewer bytes (sharding within the node, lower precision)",
            exposed // lanes - sum(gains),
            "comm_compute_overlap",
        )
    )
    return findings


def _undetermined(ranks: pa.Table, share: float, gain: int) -> _Found:
    """Time in collectives that may be waiting or transfer: what to do depends on which it is."""
    missing = unrecorded_ranks(ranks)
    here = len(set(ranks["rank"].drop_null().to_pylist()))
    why = f"{missing} of {missing + here} ranks missing" if missing else "no match on other ranks"
    return _Found(
        "exposed communication: wait or transfer, cannot be told",
        f"{100 * share:.0f} % of collective time; {why}",
        "record all ranks of a few steps: what helps depends on which of the two it is",
        gain,
        "comm_wait",
    )


def _imbalance(times: pa.Table) -> list[_Found]:
    """Ranks that compute longer than others, for which these wait sooner or later."""
    rank, compute = numbers(times["rank"], -1), numbers(times["compute_ns"])
    mean = int(compute.mean()) if len(compute) else 0
    if not mean:
        return []
    busiest = int(compute.argmax())
    over = int(compute[busiest]) - mean
    if 100.0 * over < UNEVEN_PCT * mean:
        return []
    return [
        _Found(
            "ranks compute unequally",
            f"rank {rank[busiest]} computes {format_duration(int(compute[busiest]))}, the mean is "
            f"{format_duration(mean)}, the least {format_duration(int(compute.min()))}",
            "equal work for all ranks: sequence lengths, experts, pipeline stages; gpu_speed tells "
            "a slow GPU from more work",
            over,
            "gpu_speed",
        )
    ]


def _kernels(kernels: pa.Table, device: Device | None, lanes: int) -> list[_Found]:
    """Kernels that leave the GPU partly empty, and matrix kernels off the tensor cores."""
    length = numbers(kernels["end_ns"]) - numbers(kernels["start_ns"])
    compute = matching(kernels["kind"], "compute".__eq__)
    blocks = numbers(kernels["blocks_per_sm"], -1.0)
    few = compute & (blocks >= 0) & (blocks < FEW_BLOCKS)
    empty = int((length[few] * (1 - blocks[few])).sum())
    findings = []
    if empty:
        findings.append(
            _Found(
                "kernels too small for the GPU",
                f"{pluralize(int(few.sum()), 'kernel')} with less than a block for each "
                f"multiprocessor, {format_duration(int(length[few].sum()) / lanes)}",
                "larger batches, fused kernels, or independent work on a second stream",
                empty // lanes,
                "kernel_occupancy",
            )
        )
    slow = compute & _off_tensor_cores(kernels)
    lost = int(length[slow].sum())
    advice = _faster_formats(device)
    if lost and advice:
        findings.append(
            _Found(
                "matrix kernels without tensor cores",
                f"{pluralize(int(slow.sum()), 'kernel')}, {format_duration(lost / lanes)}",
                f"{advice}; sizes that are multiples of 8",
                int(lost * TENSOR_CORE_GAIN) // lanes,
                "kernel_families",
            )
        )
    return findings


def _faster_formats(device: Device | None) -> str:
    """Return which formats this device computes on its matrix units; nothing where it has none."""
    has = {name: device.has(name) if device else None for name in ("bf16", "tf32", "fp16")}
    if has["bf16"] is None:
        return (
            "half precision: bf16 autocast (Ampere, MI100 or later), TF32 (Ampere or later), "
            "fp16 autocast with a GradScaler on Volta and Turing"
        )
    ways = []
    if has["bf16"]:
        ways.append("bf16 autocast")
    elif has["fp16"]:
        ways.append("fp16 autocast with a GradScaler (this GPU has no bf16)")
    if has["tf32"]:
        ways.append("TF32: torch.set_float32_matmul_precision('high')")
    return ", or ".join(ways)


def _off_tensor_cores(kernels: pa.Table) -> NDArray[np.bool_]:
    """Matrix products and convolutions whose name says that they use plain cores."""
    family = matching(kernels["family"], lambda f: f in ("gemm", "convolution"))
    return family & matching(kernels["name"], lambda n: kind_of(n, "kernel").tensor_core is False)


def _copies(times: pa.Table, kernels: pa.Table, lanes: int) -> list[_Found]:
    """Many small copies."""
    copies = matching(kernels["activity"], "copy".__eq__)
    size = numbers(kernels["size_bytes"], -1)
    small = copies & (size >= 0) & (size < SMALL_COPY_BYTES)
    many = int(small.sum())
    if many < MANY_COPIES:
        return []
    exposed = int(numbers(times["exposed_memory_ns"]).sum())
    length = int((numbers(kernels["end_ns"]) - numbers(kernels["start_ns"]))[small].sum())
    return [
        _Found(
            "many small copies",
            f"{many} copies below {SMALL_COPY_BYTES >> 10} KiB, {format_duration(length / lanes)}",
            "gather them into one copy; build tensors on the GPU",
            min(exposed, length) // lanes,
            "memory_bandwidth",
        )
    ]


def _recompute(kernels: pa.Table, again: NDArray[np.bool_], lanes: int) -> list[_Found]:
    """Forward work that runs a second time in backward."""
    length = (numbers(kernels["end_ns"]) - numbers(kernels["start_ns"]))[again]
    if not length.sum():
        return []
    return [
        _Found(
            "activations are recomputed",
            f"{int(again.sum())} activities launched by forward operators inside backward",
            "where memory allows: checkpoint fewer layers, or selectively (keep matrix products "
            "and attention)",
            int(length.sum()) // lanes,
            "memory_peaks",
        )
    ]


def _memory(memory: pa.Table, ranks: pa.Table) -> list[_Found]:
    """Memory near the limit of the GPU."""
    reserved: Ints = numbers(memory["reserved_bytes"])
    on_gpu = numbers(memory["device_type"], -1) == 1
    limit = [_limit(text) for text in ranks["device_properties"].to_pylist() if text]
    if not on_gpu.any() or not limit or not min(limit):
        return []
    share = 100.0 * int(reserved[on_gpu].max()) / min(limit)
    if share < FULL_PCT:
        return []
    return [
        _Found(
            "GPU memory is nearly full",
            f"{share:.0f} % of the GPU is reserved at the peak",
            "activation checkpointing, smaller micro-batches with accumulation, more sharding",
            None,
            "memory_peaks",
        )
    ]


def _limit(properties: str) -> int:
    """Memory of the first GPU, as the profiler recorded it."""
    devices = json.loads(properties)
    return int(devices[0].get("totalGlobalMem", 0)) if devices else 0
