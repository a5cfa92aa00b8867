"""Ranks wait for GPUs that run the same kernels slower than the others do."""

from htk.base.columns.arrow import read_numbers
from htk.quantities.measures.gpu_slowness import slowness_by_rank
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import fix_ranks, paces_of_ranks
from htk.verdicts.causes.clocks import describe_lower_clock
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "ranks wait for a slow GPU"
SLOWER_PCT = 3.0  # the same kernels beyond the other GPUs; less is the spread of good ones
_NAMED = 4


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    if not recorded.total_ns("comm_ns"):
        return []  # nobody waits
    slow = {rank: pct for rank, pct in measure_slowness(recorded).items() if pct >= SLOWER_PCT}
    if not slow:
        return []
    named = sorted(slow, key=lambda rank: -slow[rank])
    in_words = ", ".join(f"rank {r} {slow[r]:.0f} %" for r in named[:_NAMED])
    rest = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    clock = describe_lower_clock(recorded, named[0])
    tools = recorded.program.name_tools("nvidia-smi -q -d PERFORMANCE, rocm-smi")
    cause = Cause(
        FINDING,
        f"the same kernels take longer there: {in_words}{rest}" + (f", {clock}" if clock else ""),
        f"look at clocks, power limit, temperature and other processes there{tools}, or leave it "
        "out",
        _excess_ns(recorded, slow),
        "gpu_speed",
        change=fix_ranks(sorted(slow)),
    )
    return [cause]


def measure_slowness(recorded: CauseEvidence) -> dict[int, float]:
    """Return how much longer than usual each rank's kernels take, in %: of a replayed recording
    without what communication beside them costs."""
    if recorded.replayed is None:
        return slowness_by_rank(recorded["kernel_totals"])
    if len(recorded.replayed.model.graph.ranks) < 2:
        return {}
    paces = paces_of_ranks(recorded.replayed.model)
    return {rank: 100 * (pace - 1) for rank, pace in paces.items()}


def _excess_ns(recorded: CauseEvidence, slow: dict[int, float]) -> int:
    """Return what the kernels of slow GPUs took beyond the usual."""
    times = recorded["time_breakdown"]
    rank = read_numbers(times["rank"], -1)
    compute = read_numbers(times["compute_ns"])
    own = [pct / (100 + pct) * int(compute[rank == r].sum()) for r, pct in slow.items()]
    return round(sum(own))
