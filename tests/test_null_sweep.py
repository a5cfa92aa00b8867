"""Every analysis on recordings that lack something: null, an absent row, a refusal, never 0.

The sample is written without steps, without communication and so on, once for all ranks and once
for rank 1 alone. A column that is 0 throughout, and is not where everything was recorded, says
something false, but for what is listed here as true.
"""

import copy
import gzip
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.analyses import ANALYSES
from htk.answers.ask import ask_trace
from htk.base.core.analysis import coverage_of
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.thinned import thinned

SAMPLE = Path(htk.__file__).parent / "traces/sample"
Event = dict[str, Any]

_COMM = re.compile(r"nccl|record_param_comms|c10d")
_ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
_CALLS = {"cuda_runtime", "cuda_driver"}
_OF_GPU = _ON_GPU | _CALLS | {"gpu_user_annotation", "cuda_sync", "cuda_event", "ac2g"}


def _category(event: Event) -> str:
    return str(event.get("cat", ""))


def _without_arguments(pattern: str) -> Callable[[Event], bool]:
    def keep(event: Event) -> bool:
        arguments = event.get("args", {})
        for name in [name for name in arguments if re.match(pattern, name)]:
            del arguments[name]
        return _category(event) != "python_function" or "Python" not in pattern

    return keep


LACKING: dict[str, Callable[[Event], bool]] = {
    "steps": lambda e: "ProfilerStep" not in e["name"],
    "communication": lambda e: not _COMM.search(e["name"]),
    "stacks": _without_arguments("Call stack|Module Hierarchy|Python"),
    "memory": lambda e: e["name"] != "[memory]",
    "gpu": lambda e: _category(e) not in _OF_GPU,
    "operators": lambda e: _category(e) in _ON_GPU | _CALLS or e["ph"] == "M",
    "calls": lambda e: _category(e) in _ON_GPU or e["ph"] == "M",
    "shapes": _without_arguments("Input|Concrete"),
}
# Kernels of collectives would have been seen: nothing was sent, and nothing waited.
_TRUE_ZEROS = {
    ("communication", "comm_compute_overlap"): {"comm_ns", "overlap_ns", "exposed_comm_ns"},
    ("communication", "comm_compute_ratio"): {
        *("comm_ns", "comm_kernel_ns", "comm_share_of_kernel_time_pct", "comm_to_compute"),
    },
    # Of the other kernels every name tells whether it uses tensor cores.
    ("communication", "kernel_families"): {"tensor_core_unknown_ns"},
    ("communication", "step_variance"): {"wait_ns"},
    ("communication", "time_breakdown"): {
        *("comm_ns", "exposed_comm_ns", "comm_pct", "exposed_comm_pct"),
    },
    ("gpu", "clock_alignment"): {"collectives"},  # what was used of them
}
_KEYS = {"rank", "cycle", "device", "parent"}  # 0 is the first
# What advice on such a recording may not speak of.
_UNSEEN = {
    "communication": r"communicat|collective|ranks wait|unequally",
    "memory": r"memory",
    "stacks": r"Python function",
    "gpu": r"idle|kernel|launch",
    "steps": r"in step|every step",
}


@cache
def _recorded(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return content


def _write(folder: Path, lacking: str | None, ranks: set[int]) -> Trace:
    for path in sorted(SAMPLE.glob("*.json.gz")):
        content = copy.deepcopy(_recorded(path))
        if lacking and content["distributedInfo"]["rank"] in ranks:
            content["traceEvents"] = [e for e in content["traceEvents"] if LACKING[lacking](e)]
            content["profile_memory"] = int(lacking != "memory")
        (folder / path.name.removesuffix(".gz")).write_text(json.dumps(content))
    return open_trace(folder, OpenOptions(cache=False))


_Answers = dict[str, Any]  # rows and coverage by analysis, or the refusal


def _answers(trace: Trace) -> _Answers:
    answers: _Answers = {}
    for name in ANALYSES:
        try:
            table = ask_trace(trace, name).table
            answers[name] = table.to_pylist(), coverage_of(table)
        except htk.HtkError as error:
            answers[name] = error
    return answers


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> _Answers:
    return _answers(_write(tmp_path_factory.mktemp("full"), None, set()))


@pytest.fixture(scope="module", params=thinned(LACKING))
def lacking(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, _Answers, _Answers]]:
    """What is lacking, the answers without it on both ranks, and without it on rank 1."""
    folders = [tmp_path_factory.mktemp(f"{request.param}{k}") for k in (0, 1)]
    pairs = zip(folders, ({0, 1}, {1}), strict=True)
    yield request.param, *(_answers(_write(f, request.param, ranks)) for f, ranks in pairs)


def _zeros(rows: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> set[str]:
    """Columns that are 0 or null throughout, and hold other numbers where all was recorded."""

    def nothing(values: list[Any]) -> bool:
        return all(v is None or (v == 0 and not isinstance(v, bool)) for v in values)

    columns = set(rows[0] if rows else ()) - _KEYS
    return {
        column
        for column in columns
        if nothing([row[column] for row in rows])
        and any(row[column] is not None for row in rows)
        and not nothing([row[column] for row in recorded])
    }


def _false_zeros(
    what: str, answers: _Answers, full: _Answers, rank: int | None
) -> dict[str, set[str]]:
    """Zeros that are not known to be true, by analysis; of the rows of one rank, or of all."""
    false = {}
    for name, answer in answers.items():
        if isinstance(answer, htk.HtkError) or isinstance(full[name], htk.HtkError):
            continue
        sides = [
            rows if rank is None else [row for row in rows if row.get("rank") == rank]
            for rows in (answer[0], full[name][0])
        ]
        zeros = _zeros(*sides) - _TRUE_ZEROS.get((what, name), set())
        if zeros:
            false[name] = zeros
    return false


def test_no_zero_stands_for_what_was_not_recorded(
    lacking: tuple[str, _Answers, _Answers], full: _Answers
) -> None:
    what, on_both, on_rank_1 = lacking
    assert _false_zeros(what, on_both, full, None) == {}
    assert _false_zeros(what, on_rank_1, full, 1) == {}


def test_no_advice_speaks_of_what_was_not_recorded(
    lacking: tuple[str, _Answers, _Answers],
) -> None:
    what, answers, _ = lacking
    if what in _UNSEEN:
        rows, _ = answers["recommendations"]
        texts = [f"{row['finding']} {row['evidence']}" for row in rows]
        assert not [text for text in texts if re.search(_UNSEEN[what], text)]


def test_without_steps_units_are_said_to_be_numbered_over_all(
    lacking: tuple[str, _Answers, _Answers],
) -> None:
    what, answers, _ = lacking
    if what == "steps":
        _, coverage = answers["fsdp_units"]
        assert coverage["numbered_within"] == "the recording: no steps were recorded"


def test_passes_are_told_by_operators_alone(lacking: tuple[str, _Answers, _Answers]) -> None:
    what, answers, _ = lacking
    if what in ("operators", "calls"):
        assert {row["phase"] for row in answers["fsdp_units"][0]} == {None}
        assert {row["inferred"] for row in answers["phase_breakdown"][0]} == {None}
