"""A selection is the recording that `htk trim` would write: all questions and tables, by row.

What differs is left out: the numbers that events have in their file, the file's name, and what
other ranks tell of a rank chosen alone, which its own file does not hold.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from htk.analyses import ANALYSES, find_analysis
from htk.answers.ask import ask_trace
from htk.answers.export.rewrite import kineto_parts, sources_of, write_changed_copy
from htk.answers.export.trim import target_names, trimmed_file
from htk.answers.table import tables_read
from htk.base.errors import HtkError, UsageError
from htk.base.schema import DERIVED, TABLES
from htk.quantities.derived.registry import OVER_RANKS
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[1] / "sample_traces"
SHIPPED = {"sample": "sample", "transformer": SAMPLES / "recorded" / "transformer"}
SHARED = {  # of an H100, of eight A100s, of whole microseconds, of graphs, of AMD and of MTIA
    "eight ranks": "dlrm_8rank",
    "nanoseconds": "hta/ns_resolution_trace",
    "microseconds": "hta/trace_diff/control",
    "graphs": "tracelens/inference/vllm_prefilldecode_piecewise/graph_execution.json.gz",
    "no calls of the host": "hta/mtia_inference_trace",
    "compiled": "tracelens/b200/eager_trace.json.gz",
}
KINDS = (
    *("step", "steps", "apart", "step and times", "times", "from", "to", "range", "ranks"),
    *("name", "streams", "name and times"),
)
BY_ACTIVITY = {"kernel_top", "kernel_families", "kernel_occupancy", "memory_bandwidth", "gpu_speed"}
Choice = dict[str, Any]


def choices(trace: Trace) -> dict[str, Choice]:
    """One of each kind, where the recording has what it chooses."""
    ends = [end for end in trace.tables["ranks"]["end_ns"].to_pylist() if end is not None]
    length = max(ends) - trace.origin_ns
    found: dict[str, Choice] = {
        "times": {"from_ns": length // 5, "to_ns": 3 * length // 5},
        "from": {"from_ns": length // 2},
        "to": {"to_ns": length // 3},
    }
    steps = sorted({s for s in trace.tables["annotations"]["step"].to_pylist() if s is not None})
    if steps:
        middle = steps[len(steps) // 2]
        found["step"] = {"steps": [middle]}
        found["steps"] = {"steps": steps[-2:]}
        found["apart"] = {"steps": [steps[0], steps[-1]]}
        found["step and times"] = {"steps": [middle], "to_ns": 9 * length // 10}
    ranges = trace.tables["annotations"]
    named = [n for n in ranges["name"].unique().to_pylist() if not n.startswith("ProfilerStep")]
    if named:
        name = "backward" if "backward" in named else re.escape(named[len(named) // 2])
        found["range"] = {"annotation": name}
    kernels = trace.tables["kernels"]
    if kernels.num_rows:
        (commonest, _), *_ = Counter(kernels["name"].to_pylist()).most_common()
        streams = [stream for stream in kernels["stream"].to_pylist() if stream is not None]
        found["name"] = {"name": re.escape(commonest[:12])}
        found["streams"] = {"streams": [max(streams)]}
        found["name and times"] = {**found["name"], **found["to"]}
    if len(trace.ranks) > 1:
        found["ranks"] = {"ranks": trace.ranks[:1]}
    return found


def trimmed(trace: Trace, inputs: str | Path, folder: Path) -> Trace:
    """Return what `htk trim` writes of a selection, opened again."""
    sources = sources_of(inputs)
    parts = list({part.file: part for part in kineto_parts(trace.selected_files)}.values())
    for part, name in zip(parts, target_names(parts), strict=True):
        own = trimmed_file(trace, part.file)
        write_changed_copy(
            sources[part.file], folder / name, lambda _, value: value, own.event, own.header
        )
    return open_trace(folder, OpenOptions(cache=False))


def answer(trace: Trace, question: str) -> str | list[Mapping[str, Any]]:
    """Return what differs in no trim; of a refusal, that it is one."""
    try:
        return without_places(ask_trace(trace, question).to_pylist())
    except HtkError:
        return "refused"


def without_places(rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    return [{k: v for k, v in row.items() if "event" not in k and k != "file"} for row in rows]


@cache
def reads_other_ranks(question: str) -> bool:
    return not tables_read(find_analysis(question)).isdisjoint(OVER_RANKS)


def unlike(narrow: Trace, cut: Trace, *, one_rank: bool) -> list[str]:
    """Return the questions and tables that the two answer otherwise."""
    asked = [q for q in ANALYSES if not (one_rank and reads_other_ranks(q))]
    found = [q for q in asked if answer(narrow, q) != answer(cut, q)]
    skipped = {"ranks", *(OVER_RANKS if one_rank else ())}
    for name in {**TABLES, **DERIVED}.keys() - skipped:
        found += [] if rows_of(narrow, name) == rows_of(cut, name) else [f"table {name}"]
    return found


def rows_of(trace: Trace, table: str) -> str | list[Mapping[str, Any]]:
    try:
        return without_places(trace.tables[table].to_pylist())
    except UsageError:  # cannot be narrowed so
        return "refused"


def hold_to_trims(inputs: str | Path, kind: str, folder: Path) -> None:
    whole = open_trace(inputs)
    choice = choices(whole).get(kind)
    if choice is None:
        pytest.skip(f"nothing to choose: {kind}")
    narrow = whole.sel(**choice)
    cut = trimmed(narrow, inputs, folder / "trimmed")
    assert unlike(narrow, cut, one_rank="ranks" in choice) == []
    if narrow.selection.chooses_activities and narrow.tables["kernels"].num_rows:
        answered = {q for q in ANALYSES if answer(narrow, q) != "refused"}
        assert answered <= BY_ACTIVITY
        assert {"kernel_top", "kernel_families"} <= answered


@pytest.mark.parametrize(("recording", "kind"), thinned(product(SHIPPED, KINDS), 5))
def test_selections_of_shipped_recordings(recording: str, kind: str, tmp_path: Path) -> None:
    hold_to_trims(SHIPPED[recording], kind, tmp_path)


@pytest.mark.parametrize(("recording", "kind"), thinned(product(SHARED, KINDS), 61))
def test_selections_of_public_recordings(
    recording: str, kind: str, shared: Path, tmp_path: Path
) -> None:
    hold_to_trims(shared / "traces" / SHARED[recording], kind, tmp_path)
