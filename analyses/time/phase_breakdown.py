"""How a step divides into data loading, forward, backward and optimizer."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.columns.arrow import boolean, number, numbers, text, truths
from htk.columns.groups import Groups, unpaired
from htk.columns.intervals import union_lengths
from htk.columns.types import NO_TIME, Ints
from htk.core.analysis import analysis, with_coverage
from htk.core.chart import Bar
from htk.core.recording_hints import hint
from htk.derived.links import steps_of
from htk.errors import MissingTable
from htk.measures.breakdown import Per, percent
from htk.measures.phases import OTHER, PHASES, Phased, Phases, hosts
from htk.schema import TEXT, table

RETURNS = table(
    rank=(pa.int32(), "Global rank."),
    step=(pa.int32(), "Step that launched it; null per rank, or for what no step launched."),
    phase=(TEXT, "dataloader, forward, backward, optimizer, other; null: launch not recorded."),
    inferred=(pa.bool_(), "No user range said so, operators did, for most of its GPU time."),
    cpu_ns=(pa.int64(), "Host time in its ranges and outermost operators, on any thread."),
    gpu_ns=(pa.int64(), "At least one activity that it launched runs; null without GPU work."),
    kernel_ns=(pa.int64(), "Durations of those, added up."),
    kernels=(pa.int64(), "Activities that it launched."),
    gpu_pct=(pa.float64(), "Share of the GPU time of all phases."),
)


@analysis(returns=RETURNS, chart=Bar("phase", ("cpu_ns", "gpu_ns"), stacked=False))
def phase_breakdown(
    kernels: pa.Table,
    kernel_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    annotations: pa.Table,
    *,
    per: Annotated[Per, "Over the whole recording, or step by step."] = "rank",
) -> pa.Table:
    """How does the time divide into data loading, forward, backward and optimizer?

    From user ranges where the code has them, else inferred from the autograd thread, optimizer
    operators and the links from backward to forward; `inferred` says which. GPU work belongs to
    the phase that launched it.
    """
    if not kernels.num_rows and not cpu_ops.num_rows and not annotations.num_rows:
        raise MissingTable(f"the trace has no operators; it needs {hint('cpu_ops')}")
    phases = Phases(annotations, cpu_ops, op_links)
    gpu, launched = _gpu_keys(phases, kernels, kernel_links, per)
    host, host_start, host_end = _host_spans(phases, cpu_ops, op_links, annotations, per)
    groups = Groups.by_keys(np.concatenate([gpu, host]))
    count = len(groups)
    of_gpu, of_host = groups.group_ids[: len(gpu)], groups.group_ids[len(gpu) :]
    start, end = numbers(kernels["start_ns"]), numbers(kernels["end_ns"])
    gpu_ns = union_lengths(of_gpu, start, end, count)
    kernel_ns = np.bincount(of_gpu, end - start, minlength=count)[:count].astype(np.int64)
    many = np.bincount(of_gpu, minlength=count)[:count]
    guessed = np.bincount(of_gpu, launched.inferred * (end - start), minlength=count)[:count]
    rank, step, phase = groups.keys.reshape(-1, 3).T
    whole = Groups.by_keys(groups.keys[:, :2])
    total = whole.sum(gpu_ns)[whole.group_ids] if count else gpu_ns
    found = pa.table(
        [
            number(rank, pa.int32(), rank >= 0),
            number(step, pa.int32(), step < _LAST),
            text(np.where(phase < len(PHASES), phase, -1), pa.array(PHASES)),
            boolean(2 * guessed > kernel_ns, many > 0),
            number(union_lengths(of_host, host_start, host_end, count), pa.int64()),
            number(gpu_ns, pa.int64(), np.full(count, kernels.num_rows > 0)),
            number(kernel_ns, pa.int64()),
            number(many, pa.int64()),
            percent(gpu_ns, total),
        ],
        schema=RETURNS,
    )
    return with_coverage(found, phases_from=_sources(launched, kernels.num_rows))


_LAST = np.iinfo(np.int32).max  # what has no step comes last
_UNKNOWN = len(PHASES)


def _gpu_keys(phases: Phases, kernels: pa.Table, links: pa.Table, per: Per) -> tuple[Ints, Phased]:
    """Rank, step and phase of each activity; what has no recorded launch is of no phase."""
    op = numbers(links["op_row"], -1)
    at = numbers(links["launch_start_ns"], NO_TIME)
    guess = np.append(phases.of_ops.phase, OTHER)[op]
    found = phases.at(hosts(kernels), at, guess)
    linked = (at > NO_TIME) | (op >= 0)
    phase = np.where(linked, found.phase, _UNKNOWN)
    step = numbers(links["step"], _LAST) if per == "step" else np.full(len(op), _LAST)
    rank = numbers(kernels["rank"], -1)
    keys = np.stack([rank, step, phase], axis=1).astype(np.int64)
    return keys, Phased(phase, found.inferred)


def _host_spans(
    phases: Phases, cpu_ops: pa.Table, op_links: pa.Table, annotations: pa.Table, per: Per
) -> tuple[Ints, Ints, Ints]:
    """Rank, step and phase of outermost operators and of ranges, with their times."""
    top = np.flatnonzero((numbers(op_links["depth"]) == 0) & truths(op_links["selected"]))
    start, end = (numbers(cpu_ops[c])[top] for c in ("start_ns", "end_ns"))
    found = phases.at(hosts(cpu_ops)[top], start, phases.of_ops.phase[top])
    step = numbers(op_links["step"], _LAST)[top]
    rank = numbers(cpu_ops["rank"], -1)[top]
    keys = np.stack([rank, step, found.phase], axis=1)
    host, begin, finish, phase = phases.ranges.segments()
    more = np.stack([unpaired(host)[0], _steps_at(annotations, host, begin), phase], axis=1)
    keys = np.concatenate([keys, more]).astype(np.int64)
    if per == "rank":
        keys[:, 1] = _LAST
    return keys, np.concatenate([start, begin]), np.concatenate([end, finish])


def _steps_at(annotations: pa.Table, host: Ints, at: Ints) -> Ints:
    """The step of each host at each time."""
    found = np.full(len(at), _LAST, np.int64)
    whose = hosts(annotations)
    for one in np.unique(host).tolist():  # a rank each
        step, start, end = steps_of(annotations.filter(pa.array(whose == one)))
        mine = np.flatnonzero(host == one)
        place = np.searchsorted(start, at[mine], side="right") - 1
        inside = (place >= 0) & (at[mine] < np.append(end, 0)[place])
        found[mine[inside]] = step[place[inside]]
    return found


def _sources(launched: Phased, count: int) -> str:
    """Where the phases of GPU work come from."""
    known = launched.phase < _UNKNOWN
    named = int((known & ~launched.inferred).sum())
    return f"user ranges for {named} of {count} activities, inferred for {int(known.sum()) - named}"
