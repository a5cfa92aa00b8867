"""Servers' folders as they are downloaded, and every part of them: answers, or a plain refusal;
tokens and phases as the names of ranges say, counted here by splitting those names."""

import re
from functools import partial
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.base.errors import HtkError
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.summary import reach_verdict
from htk.whatif.api import WhatIf
from tests.thinned import thinned

NAMES = ("sglang_decode", "vllm_prefilldecode_piecewise")
QUESTIONS = (
    "iteration_times", "serving_iterations", "iteration_gaps", "roofline", "recommendations",
)  # fmt: skip
EDITS = {  # tokens for each token that is read, and for each that is given
    "requests=2x": (1, 2), "requests=4x": (1, 4), "weights=fp8": (1, 1), "kv=fp8": (1, 1),
    "prefill=2x": (2, 1), "apart=decode": (0, 1), "apart=prefill": (1, 0), "context=2x": (1, 1),
    "dp=2": (1, 1), "draft=3,acceptance=0": (1, 1), "draft=1,acceptance=1": (1, 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(shared: Path) -> dict[str, Path]:
    return {name: shared / "traces/tracelens/inference" / name for name in NAMES}


def counted(trace: Trace) -> list[tuple[int, int, int, int]]:
    """Return requests and tokens read, and requests and tokens given, of each range by hand."""
    marks = trace.tables["annotations"].to_pylist()
    names = [row["name"] for row in marks if not row["on_gpu"] and row["name"][:8] == "execute_"]
    counts = []
    for name in names:
        numbers = [[*map(int, re.findall(r"\d+", part))] for part in name.split("_generation_")]
        read, given = (
            part[part.index(n) :] for part, n in zip(numbers, _requests(name), strict=True)
        )
        counts.append((read[0], read[1], given[0], given[1] if len(given) > 1 else given[0]))
    return counts


def _requests(name: str) -> tuple[int, int]:
    read, given = name.split("context_")[1], name.split("generation_")[1]
    return int(read.split("(")[0]), int(given.split("(")[0])


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_those_of_the_names(folders: dict[str, Path], name: str) -> None:
    trace = open_trace(folders[name])
    rows = ask_trace(trace, "serving_iterations").to_pylist()
    columns = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
    assert [tuple(row[c] for c in columns) for row in rows] == counted(trace) != []
    for row in rows:
        read, given = row["prefill_requests"] > 0, row["decode_requests"] > 0
        phase = {(True, True): "mixed", (True, False): "prefill", (False, True): "decode"}
        assert row["phase"] == phase[read, given]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_a_second_follow_each_edit(folders: dict[str, Path], name: str) -> None:
    trace = open_trace(folders[name])
    counts = counted(trace)
    read, given = sum(row[1] for row in counts), sum(row[2] for row in counts)
    start, answered = WhatIf(trace), 0
    for edit, (times_read, times_given) in EDITS.items():
        try:
            (row,) = start.change("serving", edit).run().to_pylist()
        except HtkError as why:
            assert str(why), edit
            continue
        answered += 1
        tokens = read * times_read + given * times_given
        assert row["tokens_per_s"] * row["step_time_ns"] / 1e9 == pytest.approx(tokens, rel=1e-3)
        if row["generated_tokens_per_s"] is not None:
            generated = row["generated_tokens_per_s"] * row["step_time_ns"] / 1e9
            assert generated == pytest.approx(given * times_given, rel=1e-3), edit
    assert answered >= 5


@pytest.mark.parametrize("name", thinned(NAMES))
def test_every_part_of_a_folder_is_answered_or_refused(folders: dict[str, Path], name: str) -> None:
    """Whole, its captures, and each file: an answer, or a refusal in words."""
    folder = folders[name]
    files = sorted(folder.rglob("*.json.gz"))
    for part in [[folder], [folder / "capture_traces"], *([file] for file in files)]:
        trace = open_trace(part, OpenOptions(cache=False))
        assert reach_verdict(trace).headline
        asked = [partial(ask_trace, trace, question) for question in QUESTIONS]
        for question in (*asked, partial(_bounds, trace), partial(_advice, trace)):
            try:
                assert isinstance(question().to_pylist(), list)
            except HtkError as refusal:
                assert len(str(refusal)) > 10


def _bounds(trace: Trace) -> Result:
    return WhatIf(trace).run()


def _advice(trace: Trace) -> Result:
    return WhatIf(trace).recommend().run()


def test_two_servers_in_a_folder_are_named_and_one_is_chosen(folders: dict[str, Path]) -> None:
    """A rank is one process from its capture to its last iteration: 558 activities are one's."""
    parent = folders[NAMES[0]].parent
    with pytest.raises(HtkError, match=rf"2 jobs: {NAMES[0]} \(2 files.*{NAMES[1]} \(2 files"):
        open_trace(parent)
    for name, count in zip(NAMES, (558, 423), strict=True):
        chosen = open_trace(parent, OpenOptions(job=name))
        assert chosen.tables["kernels"].num_rows == count


def test_no_step_of_a_capture_is_replayed(folders: dict[str, Path]) -> None:
    """It took 33 ms of the GPU's time, the iteration 10.5."""
    both = open_trace(folders["sglang_decode"]).sel(from_ns=0)
    with pytest.raises(HtkError, match="none of a server's iterations"):
        WhatIf(both).run()
    assert "cannot be told: the step that would be replayed" in reach_verdict(both).headline


def test_two_servers_whose_names_tell_nothing_are_named_by_process(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Processes 251 and 851, each with its capture."""
    files = (file for folder in folders.values() for file in sorted(folder.rglob("*.json.gz")))
    for number, file in enumerate(files):
        (tmp_path / f"{number}.json.gz").write_bytes(file.read_bytes())
    with pytest.raises(HtkError, match=r"2 jobs: pid-251 \(2 files.*pid-851 \(2 files"):
        open_trace(tmp_path)
