"""Iterations of servers, by the names that they give their ranges."""

from pathlib import Path

import pytest

from htk.analyses.run.serving_iterations import serving_iterations
from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable, UsageError
from htk.traces.trace.opening import open_trace
from tests.tables import answer_of, make

NAMES = {
    "execute_8192_context_9(sq8155sk8430sqsq1sqsk1)_generation_37(sq37sk34489sqsq37sqsk34489)": (
        "mixed",
        9,
        8155,
        37,
        37,
        42919,
        8192,
    ),
    "execute_context_1(888_788544)_generation_0(0)": ("prefill", 1, 888, 0, 0, None, None),
    "step[DECODE bs=32]": ("decode", 0, 0, 32, 32, None, None),
    "step[EXTEND bs=2 toks=700]": ("prefill", 2, 700, 0, 0, None, None),
    "decode": ("decode", None, None, None, None, None, None),
}


def ranges(*spans: tuple[str, int, int]) -> list[dict]:
    return [{"name": n, "on_gpu": False, "start_ns": s, "end_ns": e} for n, s, e in spans]


@pytest.mark.parametrize("name", NAMES)
def test_what_names_tell(name: str) -> None:
    (row,) = answer_of(serving_iterations, annotations=make("annotations", ranges((name, 0, 10))))
    columns = ("phase", "prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens")
    assert tuple(row[c] for c in (*columns, "context_tokens", "padded_tokens")) == NAMES[name]
    assert row["gpu_span_ns"] is None


def test_times_on_the_gpu() -> None:
    """Two kernels of the first overlap by 5; the second starts 20 after its end."""
    kernels = make(
        "kernels",
        [{"start_ns": s, "end_ns": e} for s, e in ((100, 110), (105, 120), (140, 150), (1, 2))],
    )
    links = make("kernel_links", [{"launch_start_ns": t} for t in (1, 9, 10, 90)])
    named = make("annotations", ranges(("step[DECODE bs=1]", 0, 10), ("step[DECODE bs=2]", 10, 30)))
    first, second = answer_of(
        serving_iterations, annotations=named, kernels=kernels, kernel_links=links
    )
    assert (first["device_busy_ns"], first["gpu_span_ns"], first["gap_ns"]) == (20, 20, None)
    assert (second["device_busy_ns"], second["gap_ns"], second["iteration"]) == (10, 20, 1)
    assert (first["elapsed_ns"], second["elapsed_ns"]) == (20, 30), "with the gap before it"


def test_a_wait_for_unrecorded_work_is_no_time_of_an_iteration() -> None:
    """Of the 30 ns after the first end 12 are a wait; 3 ns of another lie before the first."""
    kernels = make("kernels", [{"start_ns": s, "end_ns": e} for s, e in ((100, 120), (140, 150))])
    links = make("kernel_links", [{"launch_start_ns": t} for t in (1, 10)])
    named = make("annotations", ranges(("step[DECODE bs=1]", 0, 10), ("step[DECODE bs=2]", 10, 30)))
    cause = "unrecorded_gpu_work_suspected"
    waits = [{"cause": cause, "start_ns": s, "end_ns": e} for s, e in ((97, 100), (125, 137))]
    waits.append({"cause": "host_python", "start_ns": 137, "end_ns": 140})
    rows = answer_of(
        serving_iterations,
        annotations=named,
        kernels=kernels,
        kernel_links=links,
        idle_causes=make("idle_causes", waits),
    )
    assert [row["elapsed_ns"] for row in rows] == [20, 18]


def test_recordings_of_a_rank_do_not_follow_each_other() -> None:
    kernels = make("kernels", [{"start_ns": s, "end_ns": s + 5} for s in (100, 900)])
    links = make("kernel_links", [{"launch_start_ns": t} for t in (1, 801)])
    named = ranges(("step[DECODE bs=1]", 0, 10), ("step[DECODE bs=1]", 800, 810))
    named[1]["cycle"] = 1
    rows = answer_of(
        serving_iterations,
        annotations=make("annotations", named),
        kernels=kernels,
        kernel_links=links,
    )
    assert [(row["gap_ns"], row["elapsed_ns"]) for row in rows] == [(None, 5), (None, 5)]


def test_other_servers_name_a_pattern() -> None:
    named = make("annotations", ranges(("turn 3 of 7 tokens", 0, 10)))
    options = {"match": r"turn (?P<decode>\d+) of (?P<decode_tokens>\d+)"}
    (row,) = answer_of(serving_iterations, annotations=named, options=options)
    assert (row["decode_requests"], row["decode_tokens"]) == (3, 7)
    with pytest.raises(MissingTable, match="--match"):
        answer_of(serving_iterations, annotations=named)
    with pytest.raises(UsageError, match="regular expression"):
        answer_of(serving_iterations, annotations=named, options={"match": "("})


def test_a_recorded_server(shared: Path) -> None:
    path = shared / "traces/tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz"
    (row,) = ask_trace(open_trace(str(path)), "serving_iterations").table.to_pylist()
    assert (row["decode_requests"], row["context_tokens"], row["kernels"]) == (32, 32785, 558)
