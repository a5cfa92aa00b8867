"""The host launches slower than the GPU works, or does something else for long; and what makes
launching cheaper."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, match_texts, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import (
    CauseEdit,
    whatif_change,
    without_launching,
    without_long_gaps,
)
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.idle_time import HOST
from htk.verdicts.causes.recorded import CauseEvidence
from htk.verdicts.causes.replayed import ReplayedRecording

FINDING = "launch-bound: the host launches slower than the GPU works"
BETWEEN_GRAPHS = "the GPU waits for the host between graphs"
ELSEWHERE = "the GPU waits while the host works on something else"
_ALIKE = 0.9  # of a gain: so much of it is the same edit
_CHANGED = 0.01  # of the calls of operators: fewer are counters and the like
_MORE = "larger batches, fused or foreach operators; take Python work out of the step"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    idle = recorded.idle
    cost = idle.own_cost(*HOST)
    short = np.where(idle.is_long, 0, cost)
    long = np.where(idle.is_long, cost, 0)
    elsewhere = (
        "take this work out of the step: to another thread or process, to the GPU, or to once "
        "every n steps"
    )
    finding = FINDING
    advice = launch_advice(recorded)
    change = without_launching()
    if _all_in_graphs(recorded["launch_totals"]):
        finding = BETWEEN_GRAPHS
        advice = "launch each graph before the last is done: no wait for the GPU, no work between"
        change = change._replace(option="")
    elif recorded.program.is_jax or not recorded.program.is_on_gpu:
        change = change._replace(option="")  # which asks for graphs of CUDA
    elif short.any() and not _gains_as_much(recorded.replayed, change, whatif_change("graphs")):
        change = change._replace(option="")  # which takes long gaps of the host away as well
    return [
        *idle_cause(recorded, finding, short, advice, change, is_bound=True, of_each_step=True),
        *idle_cause(recorded, ELSEWHERE, long, elsewhere, without_long_gaps()),
    ]


def _gains_as_much(
    replayed: ReplayedRecording | None, change: CauseEdit, whatif: CauseEdit
) -> bool:
    """Return whether an edit gains about as much as the what-if that is like it."""
    if replayed is None:
        return False
    gain = replayed.saved_ns([change]) or 0.0
    return gain >= _ALIKE * (replayed.saved_ns([whatif]) or 0.0)


def _all_in_graphs(launch_totals: pa.Table) -> bool:
    """Return whether graphs are launched, and no kernel outside of them."""
    names = launch_totals["name"]
    in_graphs = match_texts(names, lambda n: "GraphLaunch" in n)
    alone = match_texts(names, lambda n: "LaunchKernel" in n or "LaunchCooperative" in n)
    return bool(in_graphs.any() and not alone.any())


def launch_advice(recorded: CauseEvidence) -> str:
    """Return what makes launching cheaper here: graphs only where shapes stay, and not where they
    are in use."""
    op_totals = recorded["op_totals"]
    launch_totals = recorded["launch_totals"]
    if recorded.program.is_jax:
        return "larger programs under one jit, lax.scan over steps; fewer transfers to the host"
    if not recorded.program.is_torch:
        return "fewer and larger kernels; launch from several threads or ahead of time"
    hip = match_texts(launch_totals["name"], lambda n: n.startswith("hip")).any()
    graphs = "HIP graphs" if hip else "CUDA graphs"
    compiled = recorded.program.is_compiled
    replayed = match_texts(launch_totals["name"], lambda n: "GraphLaunch" in n).any()
    changed = changing_shapes(op_totals)
    first = [] if compiled else ["torch.compile"]
    if replayed:
        return "; ".join([*first, f"more of the step in {graphs}", _MORE])
    if changed is None:
        first.append(f"{graphs} if shapes are the same in every step")
    elif changed > _CHANGED:
        return "; ".join([
            *first,
            f"no {graphs} as it is: {100 * changed:.0f} % of operator calls have shapes that other "
            "steps have not (pad, or sort into a few sizes)",
            _MORE,
        ])  # fmt: skip
    elif compiled:
        first.append(f"torch.compile(mode='reduce-overhead'), which uses {graphs}: shapes stay")
    else:
        first.append(f"{graphs}: shapes are the same in every step")
    return "; ".join([*first, _MORE])


def changing_shapes(op_totals: pa.Table) -> float | None:
    """Return the share of operator calls whose shapes do not come as often in every step of their
    rank; None: shapes or several steps are not recorded."""
    dims, _ = codes_of(op_totals["input_dims"])
    step = read_numbers(op_totals["step"], NONE)
    rows = np.flatnonzero((dims >= 0) & (step >= 0))
    name, _ = codes_of(op_totals["name"])
    rank = read_numbers(op_totals["rank"], 0)
    cycle = read_numbers(op_totals["cycle"], 0)
    calls_of = read_numbers(op_totals["count"], 0)
    cycle_and_step = np.column_stack([cycle, step])[rows].astype(np.int64)
    columns = [column[rows].astype(np.int64) for column in (rank, name, dims)]
    columns.append(Groups.by_keys(cycle_and_step).group_ids)
    many = calls_of[rows]
    steps = Groups.by_keys([columns[0], columns[3]])
    is_inner = _inner_steps(steps.keys, steps.sum(many))[steps.group_ids]
    columns = [column[is_inner] for column in columns]
    many = many[is_inner]
    if not len(columns[0]) or len(np.unique(columns[3])) < 2:
        return None
    cells = Groups.by_keys(columns)
    alike = Groups.by_keys(cells.keys[:, :3])
    per_rank = Groups.by_keys(np.unique(cells.keys[:, [0, 3]], axis=0)[:, :1])
    steps_of_rank = per_rank.count[np.searchsorted(per_rank.keys[:, 0], alike.keys[:, 0])]
    everywhere = alike.count == steps_of_rank
    in_cell = cells.sum(many)
    everywhere &= alike.min(in_cell) == alike.max(in_cell)
    calls = alike.sum(in_cell)
    return float(calls[~everywhere].sum() / calls.sum())


def _inner_steps(keys: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Steps that are not cut: without those that hold less than half of the calls of the rank's
    largest."""
    most = Groups.by_keys(keys[:, :1])
    return np.asarray(2 * count >= most.max(count)[most.group_ids])
