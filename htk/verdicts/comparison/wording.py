"""What changed, in sentences: the step first, then each cause with its part, then what to ask."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from htk.base.core.humanize import (
    format_duration,
    format_int_ranges,
    format_signed_duration,
    shorten_text,
)
from htk.base.mappings import Facts
from htk.base.names.kinds import kind_of
from htk.verdicts.comparison.causes import ChangeCause
from htk.verdicts.comparison.compared import ComparedWork
from htk.verdicts.comparison.recorded_work import RecordedWork

_LEAST = 0.005  # of the step: smaller parts are in the table alone
_LEAST_BESIDE = 0.002  # of compute: what waiting kernels beside it cost
_MOST_APART = 8  # ranks work by name
_FAMILIES = {"gemm": "matrix products", "attention": "attention kernels"}


def write_headline(total: Facts | None, work: ComparedWork) -> str:
    """Return the verdict: how the step changed, and what of that each cause is."""
    if total is None:
        return (
            "no complete steps on both sides: a call of each kernel and operator is compared, and "
            "all else, counts too, in a second recorded"
        )
    words = _of_step(total)
    step = float(total["base_ns"])
    large = [c for c in work.causes if abs(c.part_ns) >= _LEAST * step]
    if not large:
        return words
    parts = [f"{format_signed_duration(c.part_ns)} {describe_cause(c, work)}" for c in large]
    left = total["diff_ns"] - sum(c.part_ns for c in work.causes)
    is_known = all(c.is_replayed for c in work.causes)
    noise = total["noise_ns"] or 0.0
    if is_known and abs(left) > max(_LEAST * step, noise):
        parts.append(f"{format_signed_duration(left)} unexplained")
    how = "" if is_known else " (in recorded time: the step could not be replayed)"
    return f"{words}: {'; '.join(parts)}{how}"


def _of_step(total: Facts) -> str:
    was = format_duration(round(total["base_ns"]))
    now = format_duration(round(total["new_ns"]))
    share = "" if total["diff_pct"] is None else f"{total['diff_pct']:+.1f} %"
    noise = total["noise_ns"]
    sure = "" if noise is None else f" ± {100 * noise / max(total['base_ns'], 1):.1f} %"
    if total["change"] in ("same", "unclear"):
        return f"step {total['change']} ({was} → {now}, {share}{sure})"
    return f"step {format_signed_duration(total['diff_ns'])} ({was} → {now}, {share})"


def describe_cause(cause: ChangeCause, work: ComparedWork) -> str:
    """Return what a cause is, in words."""
    where = _describe_ranks(cause, work)
    if cause.kind == "gpu":
        alone = f"wait for {where}, whose" if where != "all ranks" else "all ranks:"
        return f"{alone} kernels take {_describe_longer(cause.change)}"
    if cause.kind == "kernel":
        return f"{_name_kernels(cause)} take {_describe_longer(cause.change)} on {where}"
    if cause.kind == "links":
        return f"transfers ({cause.name} most) take {_describe_longer(cause.change)}, {where}"
    if cause.kind == "program":
        return f"other kernels run than before, or as often no more, on {where}"
    what = {"loader": "data loading", "allocator": "memory allocation"}[cause.kind]
    way = "longer" if cause.change > 0 else "less long"
    return f"{what} takes {format_duration(abs(round(cause.change)))} {way} on {where}"


def _name_kernels(cause: ChangeCause) -> str:
    if len(cause.by_rank) == 1:
        return shorten_text(cause.name, 40)
    family = kind_of(cause.name, "kernel").family
    return f"{_FAMILIES.get(family, family + ' kernels')} ({len(cause.by_rank)} names)"


def _describe_longer(change: float) -> str:
    digits = 1 if abs(change) < 0.1 else 0
    return f"{100 * abs(change):.{digits}f} % {'longer' if change > 0 else 'less time'}"


def _describe_ranks(cause: ChangeCause, work: ComparedWork) -> str:
    """Return the ranks of a cause in words."""
    every = [] if work.new is None else work.new.ranks.tolist()
    if len(cause.ranks) == len(every) and len(every) > 1:
        return "all ranks"
    return f"rank{'s' * (len(cause.ranks) > 1)} {format_int_ranges(cause.ranks)}"


def rank_lines(work: ComparedWork) -> list[str]:
    """Return how compute of ranks that changed by themselves did, and that of the others."""
    apart = apart_ranks(work)
    if work.base is None or work.new is None or not apart:
        return []
    was = work.base
    now = work.new
    chosen = np.isin(now.ranks, apart)
    raw = now.compute_ns.mean(axis=1) / was.compute_ns.mean(axis=1) - 1
    own = _average_alone(now, work.kappa) / _average_alone(was, work.kappa) - 1
    lines = [
        f"rank {rank} alone: compute {100 * raw[k]:+.1f} %"
        for k, rank in enumerate(now.ranks.tolist())
        if chosen[k]
    ]
    if (~chosen).any():
        others = float(raw[~chosen].mean())
        beside = others - float(own[~chosen].mean())
        waits = (
            f", of it {100 * beside:.1f} by what communicates beside it" if beside > 0.002 else ""
        )
        lines.append(f"other ranks: compute {100 * others:+.1f} %{waits}")
    return ["; ".join(lines)]


def _average_alone(work: RecordedWork, kappa: float) -> Any:
    return work.alone_ns(kappa).sum(axis=0).mean(axis=1)


def apart_ranks(work: ComparedWork) -> list[int]:
    """Return ranks whose kernels changed as those of the others did not."""
    every = 0 if work.new is None else len(work.new.ranks)
    ranks = {
        rank
        for cause in work.causes
        if cause.kind in ("gpu", "kernel") and len(cause.ranks) < every
        for rank in cause.ranks
    }
    return sorted(ranks)[:_MOST_APART]


def next_commands(causes: Sequence[ChangeCause], base: str, new: str) -> list[str]:
    """Return what to ask next, for the causes with the largest parts."""
    if not causes:
        return []
    asked = []
    for cause in causes[:3]:
        if cause.kind == "gpu" and len(cause.ranks) <= 2:
            asked += [f"htk whatif {new} --fix-rank {rank}" for rank in cause.ranks]
        elif cause.kind == "gpu":
            asked.append(f"htk gpu-speed {new}")
        else:
            asked.append(_NEXT[cause.kind].format(base=base, new=new))
    return list(dict.fromkeys([*asked, f"htk summary {new}"]))


_NEXT = {
    "kernel": "htk diff-tree {base} {new}",
    "program": "htk diff-tree {base} {new}",
    "links": "htk slow-links {new}",
    "loader": "htk whatif {new} --no-data-wait on",
    "allocator": "htk memory-timeline {new}",
}
