"""Operator, module and line of each kernel of public recordings, read from the raw events alone.

Launch by correlation, then what was open on its thread at that time: by plain json and a scan.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from htk.base.columns.arrow import read_numbers
from htk.quantities.measures.kernels_by import NAMING, tell_apart
from htk.traces.trace.opening import open_trace

RECORDINGS = (  # with stacks, and without a backward pass
    "h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "mi300/facebook_timesformer-base-finetuned-k400__1016002.json.gz",
    "mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz",
)
MODULE = "nn.Module: "
PROGRAM = ("transformers/", "moca/")  # what these programs are made of, beside PyTorch and Python
CALLS = ("cuda_runtime", "cuda_driver")
FRAMES = ("cpu_op", "python_function")


class Callers(NamedTuple):
    op: str | None
    module: str | None
    source: str | None


def open_frames(events: list[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the correlation of each launch, and what was open on its thread, outermost first."""
    threads = defaultdict(list)
    for event in events:
        if event.get("cat") in (*CALLS, *FRAMES):
            threads[event["pid"], event["tid"]].append(event)
    for thread in threads.values():
        thread.sort(key=lambda event: (event["ts"], -event["dur"]))
        stack: list[dict[str, Any]] = []
        for event in thread:
            while stack and stack[-1]["ts"] + stack[-1]["dur"] < event["ts"]:
                stack.pop()
            if event["cat"] in FRAMES:
                stack.append(event)
            elif "correlation" in event["args"]:
                yield event["args"]["correlation"], stack.copy()


def callers(stack: list[dict[str, Any]]) -> Callers:
    ops, frames = ([e["name"] for e in stack if e["cat"] == category] for category in FRAMES)
    modules = [name.removeprefix(MODULE) for name in frames if name.startswith(MODULE)]
    lines = [name for name in frames if name.startswith(PROGRAM)]
    return Callers(
        ops[-1] if ops else None,
        ".".join(modules) or None,
        lines[-1] if lines else None,
    )


@pytest.mark.parametrize("name", RECORDINGS)
def test_each_kernel_has_what_was_open_when_it_was_launched(shared: Path, name: str) -> None:
    path = shared / "traces/tracelens" / name
    with gzip.open(path) as file:
        expected = {k: callers(stack) for k, stack in open_frames(json.load(file)["traceEvents"])}
    tables = open_trace(path).tables
    later = {table: lambda table=table: tables[table] for table in NAMING}
    told = {by: tell_apart(by, later) for by in Callers._fields}
    correlation = read_numbers(tables["kernels"]["correlation"]).tolist()
    compared = 0
    for row, key in enumerate(correlation):
        if key not in expected:  # launched before the recording
            assert not any(known[row] for _, known in told.values())
            continue
        found = Callers(
            *(t.texts[t.codes[row]] if is_told[row] else None for t, is_told in told.values())
        )
        assert Callers(*found) == expected[key], key
        compared += 1
    assert compared >= 30
