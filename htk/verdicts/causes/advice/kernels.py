"""Findings on GPU work itself: slower than before, repeated, off the tensor cores, too small.

Each activity gives its time once: what one rule takes is gone for the next.
"""

import re

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, matching, numbers, truths
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.base.core.humanize import format_duration, format_int_ranges, pluralize, shorten
from htk.base.names.kinds import kind_of
from htk.physics.detected import Device
from htk.quantities.measures.kernel_changes import KernelChange
from htk.verdicts.causes.advice.finding import Advice, Example, costliest, longest
from htk.verdicts.causes.advice.waiting import COMPUTE, BlamedWaits, Exposed

SMALL_COPY_BYTES = 64 << 10
MANY_COPIES = 100
FEW_BLOCKS = 1.0  # blocks for each multiprocessor: below it some have none
TENSOR_CORE_GAIN = 0.5  # at least twice the rate on every GPU since Volta
_SIXTEEN_BIT = re.compile(r"bf16|fp16|f16|h16|hgemm|hmma|BFloat16|half|Half|_HHS_|_BBS_")
_FEWER_BITS = re.compile(r"fp8|f8|e4m3|e5m2|E4m3|fp4|int8|i8|s8|u4b8|marlin")
REGRESSED = "a kernel became slower"


class UnclaimedTime:
    """GPU activities that are alike, and how much of the time of each no finding has taken yet."""

    def __init__(self, totals: pa.Table, times: pa.Table) -> None:
        self.totals = totals
        self.rank = numbers(totals["rank"], NONE).astype(np.int64)
        self.calls, self.length = (numbers(totals[c]) for c in ("count", "total_ns"))
        self.compute = matching(totals["kind"], "compute".__eq__)
        self.memory = matching(totals["kind"], "memory".__eq__)
        code, names = codes_of(totals["name"])
        self.name, self.names = code.astype(np.int64), names.to_pylist()
        # Kernels that run beside one another share the time, and copies beside compute have none.
        self.left = np.zeros(len(self.length))
        for rows, column in ((self.compute, "compute_ns"), (self.memory, "exposed_memory_ns")):
            total = int(self.length[rows].sum())
            there = int(numbers(times[column]).sum())
            self.left[rows] = self.length[rows] * min(1.0, there / total if total else 0.0)

    def take(self, rows: Mask, share: Floats | float) -> int:
        """Return a share of the rows' time, which is not there any more."""
        taken = np.where(rows, self.left * share, 0.0)
        self.left = self.left - taken
        return int(taken.sum())

    def finding(
        self, rows: Mask, gain: int, finding: str, evidence: str, advice: str, analysis: str
    ) -> Advice:
        """Return a finding on some activities, with their names and the longest of them."""
        cost = np.where(rows, self.length, 0)
        events = costliest(self.names, self.name, cost)
        shown = ", ".join(shorten(event) for event in events)
        return Advice(
            finding,
            f"{evidence}: {shown}" if shown else evidence,
            advice,
            gain,
            analysis,
            events,
            self.example(rows),
        )

    def example(self, rows: Mask) -> Example | None:
        """Return the longest activity of some rows."""
        start, length = (numbers(self.totals[c])[rows] for c in ("longest_start_ns", "longest_ns"))
        return longest(self.rank[rows], start, start + length)

    def first_start(self, rows: Mask) -> int:
        """Return the start of the first activity of some rows."""
        return int(numbers(self.totals["start_ns"])[rows].min())

    def count(self, rows: Mask) -> int:
        """Return how many activities some rows stand for."""
        return int(self.calls[rows].sum())


def _begun(change: KernelChange) -> tuple[str, int, int]:
    return change.name, change.cycle, change.step


def changed_findings(
    work: UnclaimedTime, changes: list[KernelChange], exposed: Exposed, waits: BlamedWaits
) -> tuple[list[Advice], Mask]:
    """Return the finding on kernels that became slower, and the waits that it explains: for ranks
    on which alone they did."""
    explained = np.zeros(len(waits.row), bool)
    if not changes:
        return [], explained
    worst = changes[0]
    ranks = sorted({c.rank for c in changes if _begun(c) == _begun(worst)})
    everywhere = set(ranks) >= set(work.rank[work.compute].tolist())
    slow = np.zeros(len(work.length), bool)
    share = np.zeros(len(work.length))
    begin = {rank: np.iinfo(np.int64).max for rank in ranks}
    for change in changes:
        code = work.names.index(change.name)
        rows = (work.name == code) & (work.rank == change.rank)
        slow |= rows
        share[rows] += change.lost_ns / max(int(work.length[rows].sum()), 1)
    gain = work.take(slow, share)
    if not everywhere:
        late = np.isin(waits.rank, ranks) & (waits.kind == COMPUTE)
        start = exposed.calls.rows.start[waits.row]
        for rank in ranks:
            of_rank = slow & (work.rank == rank)
            begin[rank] = work.first_start(of_rank)
            explained |= late & (waits.rank == rank) & (start > begin[rank])
        gain += int(waits.wait_ns[explained].sum())
    others = len({c.name for c in changes}) - 1
    where = "all ranks" if everywhere and len(ranks) > 1 else f"rank {format_int_ranges(ranks)}"
    cycle = f" of cycle {worst.cycle}" if worst.cycle else ""
    evidence = (
        f"{shorten(worst.name)} takes {worst.ratio:.2f}x as long from step {worst.step}{cycle} on "
        f"({format_duration(worst.before_ns)} → {format_duration(worst.after_ns)} a call) on "
        f"{where}; {pluralize(others, 'other kernel')} too"
    )
    rows = slow & (work.rank == worst.rank)
    finding = Advice(
        REGRESSED,
        evidence if others else evidence.rpartition(";")[0],
        "see what changed at that step: sizes, data, algorithm (cudnn.benchmark), another process "
        "on the GPU; compare its shapes before and after",
        gain,
        "kernel_top",
        [worst.name],
        work.example(rows),
        is_change=True,
    )
    return [finding], explained


def kernel_findings(work: UnclaimedTime, device: Device | None, gpus: int) -> list[Advice]:
    """Findings on kernels and copies as they are, in the order in which they take their time."""
    return [
        *_recompute(work),
        *_off_tensor_cores(work, device, gpus),
        *_too_small(work, gpus),
        *_small_copies(work, gpus),
        *_eight_bit(work, device, gpus),
    ]


def _recompute(work: UnclaimedTime) -> list[Advice]:
    """Forward work that runs a second time in backward."""
    again = truths(work.totals["recomputed"])
    gain = work.take(again, 1.0)
    if not gain:
        return []
    return [
        work.finding(
            again,
            gain,
            "activations are recomputed",
            f"{work.count(again)} activities launched by forward operators inside backward",
            "where memory allows: checkpoint fewer layers, or selectively (keep matrix products "
            "and attention)",
            "memory_peaks",
        )
    ]


def _off_tensor_cores(work: UnclaimedTime, device: Device | None, gpus: int) -> list[Advice]:
    """Matrix products and convolutions whose name says that they use plain cores."""
    rows = work.compute & _matrix(work) & _tensor_core(work, False)
    advice = _faster_formats(device)
    if not rows.any() or not advice:
        return []
    return [
        work.finding(
            rows,
            work.take(rows, TENSOR_CORE_GAIN),
            "matrix kernels without tensor cores",
            f"{pluralize(work.count(rows), 'kernel')}, "
            f"{format_duration(int(work.length[rows].sum()) / gpus)}",
            f"{advice}; sizes that are multiples of 8",
            "kernel_families",
        )
    ]


def _matrix(work: UnclaimedTime) -> Mask:
    return np.asarray(matching(work.totals["family"], lambda f: f in ("gemm", "convolution")))


def _tensor_core(work: UnclaimedTime, uses: bool) -> Mask:
    return np.asarray(
        matching(work.totals["name"], lambda n: kind_of(n, "kernel").tensor_core is uses)
    )


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


def _too_small(work: UnclaimedTime, gpus: int) -> list[Advice]:
    """Return the kernels that leave the GPU partly empty."""
    blocks = numbers(work.totals["blocks_per_sm"], -1.0)
    few = work.compute & (blocks >= 0) & (blocks < FEW_BLOCKS)
    gain = work.take(few, 1 - np.clip(blocks, 0, 1))
    if not gain:
        return []
    return [
        work.finding(
            few,
            gain,
            "kernels too small for the GPU",
            f"{pluralize(work.count(few), 'kernel')} with less than a block for each "
            f"multiprocessor, {format_duration(int(work.length[few].sum()) / gpus)}",
            "larger batches, fused kernels, or independent work on a second stream",
            "kernel_occupancy",
        )
    ]


def _small_copies(work: UnclaimedTime, gpus: int) -> list[Advice]:
    copies = matching(work.totals["activity"], "copy".__eq__)
    size = numbers(work.totals["size_bytes"], NONE)
    small = copies & (size >= 0) & (size < SMALL_COPY_BYTES)
    many = work.count(small)
    if many < MANY_COPIES:
        return []
    length = int(work.length[small].sum())
    return [
        work.finding(
            small,
            work.take(small, 1.0),
            "many small copies",
            f"{many} copies below {SMALL_COPY_BYTES >> 10} KiB, {format_duration(length / gpus)}",
            "gather them into one copy; build tensors on the GPU",
            "memory_bandwidth",
        )
    ]


def _is_sixteen_bit(name: str) -> bool:
    return bool(_SIXTEEN_BIT.search(name)) and not _FEWER_BITS.search(name)


def _eight_bit(work: UnclaimedTime, device: Device | None, gpus: int) -> list[Advice]:
    """Matrix products in 16 bit on a GPU that has 8-bit floats. It changes what is computed, so
    that no time is promised."""
    if device is None or not device.has("fp8"):
        return []
    gemms = work.compute & matching(work.totals["family"], "gemm".__eq__)
    rows = gemms & matching(work.totals["name"], _is_sixteen_bit)
    length: Ints = work.length
    if length[rows].sum() < 0.3 * length[work.compute].sum() or not rows.any():
        return []
    return [
        Advice(
            "matrix products in 16 bit on a GPU with FP8",
            f"{pluralize(work.count(rows), 'kernel')}, "
            f"{format_duration(int(length[rows].sum()) / gpus)}, at most half of it: "
            + ", ".join(shorten(e) for e in costliest(work.names, work.name, length * rows)),
            "where accuracy allows: FP8 for large linear layers (torchao.float8, "
            "TransformerEngine), checked against a run in bf16",
            None,
            "kernel_families",
            costliest(work.names, work.name, length * rows),
            work.example(rows),
        )
    ]
