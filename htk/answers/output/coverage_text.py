"""What an answer rests on, in a line or two of text."""

from collections.abc import Iterable, Mapping
from typing import Any

from htk.base.core.humanize import (
    format_duration,
    format_int_ranges,
    format_value,
    make_visible,
    pluralize_count,
)
from htk.base.mappings import Facts
from htk.base.schema.columns import heading_of, unit_of

_NEARLY_ALL_PCT = 99.95


def coverage_lines(coverage: Facts) -> list[str]:
    """Return what the numbers rest on, in a line or two."""
    parts = []
    ranks = coverage.get("ranks") or []
    missing = coverage.get("missing_ranks") or []
    world_size = coverage.get("world_size")
    if ranks:
        of = f" of {world_size}" if world_size else ""
        parts.append(f"{len(ranks)}{of} rank{'s' if (world_size or len(ranks)) > 1 else ''}")
    absent = [r for r in missing if world_size is None or r < world_size]
    if absent:
        parts.append(f"missing rank{'s' * (len(absent) > 1)} {format_int_ranges(absent)}")
    beyond = missing[len(absent) :]  # they are sorted
    if beyond:
        parts.append(f"no rank{'s' * (len(beyond) > 1)} {format_int_ranges(beyond)} in this job")
    if coverage.get("gpu_activities"):
        parts.append(f"{coverage['gpu_activities']:,} GPU activities")
        if (linked := coverage["gpu_activities_linked_pct"]) is not None:
            parts.append(f"{_below_all(linked)} % of GPU time linked to launches")
    if coverage.get("carry_in_activities"):
        carried = format_duration(coverage["carry_in_ns"])
        parts.append(f"{coverage['carry_in_activities']:,} carried in ({carried})")
    if coverage.get("unlinked_activities"):
        parts.append(f"{coverage['unlinked_activities']:,} unlinked")
    parts += _describe_losses(coverage)
    if changed := (coverage.get("issues") or {}).get("wrong_checksum"):
        parts.append(f"{pluralize_count(changed, 'file')} with a wrong checksum")
    for name in ("failed", "unread"):
        if coverage.get(f"files_{name}"):
            parts.append(f"{pluralize_count(coverage[f'files_{name}'], 'file')} {name}")
    parts += _describe_clocks(coverage)
    lines = ["coverage: " + ", ".join(parts)] if parts else []
    generic = _GENERIC | (_SAID_FIRST if "in_short" in coverage else set())
    own = {k: v for k, v in coverage.items() if k not in generic and v not in (None, "", [], {})}
    if cycles := coverage.get("cycles_of_steps"):
        lines.append(
            f"          these steps are in {len(cycles)} cycles of a rank, and all are used; "
            f"choose with --cycles {format_int_ranges(cycles)}"
        )
    if own:
        lines.append(
            "          "
            + ", ".join(f"{_in_words(k)}: {_format_fact(k, v)}" for k, v in own.items())
        )
    return lines


def _below_all(share_pct: float) -> str:
    """Return a share to three digits; what is not all does not become 100."""
    return f"{share_pct:.3g}" if share_pct < _NEARLY_ALL_PCT else f"{share_pct:g}"


def _in_words(name: str) -> str:
    """Return a fact's name as people say it: its unit stands at the value."""
    words = heading_of(name).removesuffix(" %").split(" ")
    return " ".join("%" if word == "pct" else word for word in words)


def _part_name(name: str) -> str:
    """Return how a part of a fact is called: a figure in words, a kernel as it is."""
    return _in_words(name) if unit_of(name) else make_visible(name)


def _describe_losses(coverage: Facts) -> list[str]:
    """Return what files lost, and what of them was left out or is told apart."""
    issues = coverage.get("issues") or {}
    parts = _in_their_words(issues, _NAMED_LOSSES)
    others = coverage.get("dropped", 0) - sum(issues.get(kind, 0) for kind in _NAMED_LOSSES)
    if others:
        parts.append(pluralize_count(others, "parse issue"))
    if parts:
        parts[-1] += " (htk doctor shows them)"
    return parts


def damage_words(coverage: Facts, kinds: Iterable[str] | None = None) -> str:
    """Return what a recording holds that cannot be, of some kinds or of all, or nothing."""
    return ", ".join(_in_their_words(coverage.get("issues") or {}, kinds or _IMPOSSIBLE))


def _in_their_words(issues: Mapping[str, int], kinds: Iterable[str]) -> list[str]:
    losses = [(issues[kind], *_NAMED_LOSSES[kind]) for kind in kinds if kind in issues]
    return [f"{pluralize_count(count, what)} {fate}" for count, what, fate in losses]


def _describe_clocks(coverage: Facts) -> list[str]:
    """Return whether ranks were put on one clock, and what that leaves."""
    word = coverage.get("clock_alignment")
    if word is None or not (coverage.get("clock_offset_max_ns") or word == "off"):
        return []
    if word == "off":
        return ["clocks as recorded"]
    offset = format_duration(coverage["clock_offset_max_ns"])
    left = format_duration(coverage["clock_residual_max_ns"])
    return [f"clock alignment {word}: offsets up to {offset}, residual up to {left}"]


MENDED = {  # what no whole recording has, and no answer
    "stray_time": ("stray time", "left out"),
    "endless": ("endless event", "cut"),
    "repeated_call": ("repeated call", "left out"),
    "repeated_activity": ("repeated GPU event", "left out"),
    "far_activity": ("far-off GPU event", "left out"),
    "long_call": ("overlong call", "cut at its caller's end"),
    "long_step": ("overlong step", "cut at the next"),
    "inner_step": ("inner step", "taken as a range"),
    "gpu_clock": ("GPU event", "that its calls rule out moved with the GPU's clock"),
    "early_activity": ("too early GPU event", "moved to its launch"),
    "late_activity": ("too late GPU event", "moved to its launch"),
    "overrun": ("overlong GPU event", "cut at the next of its stream"),
}
_IMPOSSIBLE = {  # or what cannot be told better
    **MENDED,
    "no_time": ("event", "without a time left out"),
    "negative_duration": ("negative duration", "taken as 0"),
    "overflowed_duration": ("overflowed duration", "taken as 0"),
    "overrun_kept": ("overlong GPU event", "kept"),
    "outlasting": ("event that outlasts all others", "kept"),
    "crowded_stream": ("GPU event", "beside too many of its stream"),
    "split_context": ("GPU event", "of contexts on several GPUs"),
    "mixed_gpus": ("GPU event", "that wait for another GPU's"),
    "other_operator": ("GPU event", "of other operators than their launches"),
    "no_name": ("GPU event", "without a name"),
    "other_thread": ("launching call", "of operators of other threads"),
    "other_time": ("launching call", "of operators that were not open"),
    "no_length": ("GPU event", "without a length"),
    "later_operator": ("GPU event", "ahead of the operator named"),
    "impossible_copy": ("impossibly fast transfer", "kept"),
    "impossible_product": ("impossibly fast matrix product", "kept"),
    "lost_activity": ("launching call", "without GPU events"),
    "lost_launch": ("GPU event", "without launching calls"),
}
_NAMED_LOSSES = {
    "older_recording": ("older recording", "left out"),
    "copy_of_a_file": ("copied file", "left out"),
    "same_rank": ("overlapping file", "of one rank kept"),
    "unread_events": ("event", "of kinds that are not read"),
    "whole_graph": ("CUDA graph", "recorded as a whole, of no known kind"),
    **_IMPOSSIBLE,
}
_GENERIC = {
    "cycles_of_steps",
    "clock_alignment",
    "clock_offset_max_ns",
    "clock_residual_max_ns",
    "clock_sigma_max_ns",
    "clock_sets",
    "ranks",
    "world_size",
    "missing_ranks",
    "events",
    "dropped",
    "issues",
    "files_unread",
    "files_failed",
    "gpu_activities",
    "gpu_activities_linked_pct",
    "carry_in_activities",
    "carry_in_ns",
    "unlinked_activities",
    "unlinked_ns",
    "origin_ns",
}


_SAID_FIRST = {"in_short", "verdict", "next", "unlike"}  # stand above the table


def _format_fact(name: str, value: object, unit: str = "") -> str:
    """Return a fact's value; the parts of one have its unit, where their names tell none."""
    unit = unit_of(name) or unit
    if isinstance(value, dict):
        named = {str(key): part for key, part in value.items()}
        return ", ".join(
            f"{_part_name(k)} {_format_fact(k, part, unit)}" for k, part in named.items()
        )
    if isinstance(value, list):
        return _describe_few(value)
    return make_visible(format_value(value, unit)).removesuffix(".")  # other facts follow it


def _describe_few(values: list[Any]) -> str:
    if values and isinstance(values[0], dict):  # a table of its own, which JSON has whole
        return pluralize_count(len(values), "row")
    text = make_visible(", ".join(map(str, values[:8])))
    return text + (f", … ({len(values)})" if len(values) > 8 else "")
