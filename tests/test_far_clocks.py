"""Ranks on clocks that lie decades apart get the same answers as ranks on one clock."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.analyses import ANALYSES
from htk.answers.ask import ask_trace
from htk.base.errors import HtkError
from htk.base.schema import ABSOLUTE_TIMES
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.whatif.api import WhatIf
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

_YEAR_NS = 365 * 86_400_000_000_000
NOW = 1_763_000_000_000_000_000
CLOCKS = {
    "one clock": (NOW, NOW + 1_000_000, NOW + 2_000_000),
    "one rank since boot": (NOW, 5_000_000_000, NOW),
    "55 years and more": (NOW, 0, 1 << 60),
    "before and after": (-(1 << 60), NOW, 1 << 60),
}
# Which ranks ran at the same time is another question on each clock.
OVER_RANKS = {
    "clock_alignment",
    "critical_path",
    "late_arrivals",
    "memory_timeline",
    "pipeline_bubble",
    "stragglers",
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    opened = {}
    for name, clocks in CLOCKS.items():
        folder = tmp_path_factory.mktemp("clocks")
        for rank, base in enumerate(clocks):
            write(folder / f"rank{rank}.json", *events(rank), **of_rank(rank, 3, base))
        opened[name] = open_trace(folder, OpenOptions(cache=False))
    return opened


def events(rank: int) -> list[Event]:
    """Two steps on seven threads and three streams; operators nest, kernels overlap."""
    draw = random.Random(rank)
    made: list[Event] = []
    correlation = 0
    for number in (0, 1):
        at = 1000 * number
        made += [step(number, at, 1000), span("forward", at + 10, 400)]
        for thread in range(1, 8):
            for k in range(6):
                begin = at + 20 + 150 * k + thread
                length = draw.randint(60, 120)
                made.append(op(f"aten::op{k % 3}", begin, length, thread))
                made.append(op("aten::inner", begin + 5, length - 20, thread))
                correlation += 1
                made.append(launch(correlation, begin + 7, 2, thread))
                ready = begin + draw.randint(10, 60)
                made.append(
                    kernel(f"gemm{k % 2}", ready, draw.randint(5, 90), correlation, 7 + thread % 3)
                )
    return made


@pytest.mark.parametrize("clocks", [name for name in CLOCKS if name != "one clock"])
@pytest.mark.parametrize("name", [name for name in ANALYSES if name not in OVER_RANKS])
def test_an_answer_does_not_depend_on_the_clocks(
    traces: dict[str, Trace], name: str, clocks: str
) -> None:
    assert rows(traces[clocks], name) == rows(traces["one clock"], name)


@pytest.mark.parametrize("clocks", [name for name in CLOCKS if name != "one clock"])
def test_a_critical_path_is_of_ranks_on_one_clock(traces: dict[str, Trace], clocks: str) -> None:
    """Of each rank it is what it is on one clock; of all there is none without collectives."""
    whole = traces[clocks]
    for rank in (0, 1, 2):
        far, near = (trace.sel(ranks=[rank]) for trace in (whole, traces["one clock"]))
        assert _path(far) == _path(near)
    with pytest.raises(HtkError, match="apart, and no collectives put them on one"):
        ask_trace(whole, "critical_path")
    with pytest.raises(HtkError, match="choose a rank"):
        WhatIf(whole).change("batch", "2x").run()


def _path(trace: Trace) -> Any:
    result = ask_trace(trace, "critical_path")
    own = ("what", "name", "count", "path_ns", "path_pct", "observed_pct")
    rows = [{k: row[k] for k in own} for row in result.to_pylist()]
    return rows, result.coverage["step_ns"], result.coverage["verdict"]


@pytest.mark.parametrize("marked", [True, False], ids=["steps", "no steps"])
@pytest.mark.parametrize("early", [0, 1])
def test_collectives_put_far_clocks_on_one(tmp_path: Path, marked: bool, early: int) -> None:
    """The sample, one of its ranks 55 years back: waits and paths differ by a few us at most."""
    near = _sample(tmp_path / "near", None, marked)
    far = _sample(tmp_path / "far", early, marked)
    paths = [ask_trace(trace, "critical_path") for trace in (near, far)]
    step_ns = [path.coverage["step_ns"] for path in paths]
    assert step_ns[1] == pytest.approx(step_ns[0], abs=5_000)
    by_kind = [{row["what"]: row["path_ns"] for row in path.to_pylist()} for path in paths]
    assert by_kind[0].keys() == by_kind[1].keys()
    for kind, ns in by_kind[0].items():
        assert by_kind[1][kind] == pytest.approx(ns, abs=20_000), kind
    waits = [{row["rank"]: row["wait_ns"] for row in ask_trace(trace, "comm_wait").to_pylist()}
             for trace in (near, far)]  # fmt: skip
    assert waits[1] == {rank: pytest.approx(ns, abs=20_000) for rank, ns in waits[0].items()}


def _sample(folder: Path, early: int | None, marked: bool) -> Trace:
    folder.mkdir()
    for path in sorted((Path(htk.__file__).parent / "traces/sample").glob("*.json.gz")):
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["distributedInfo"]["rank"] == early:
            content["baseTimeNanoseconds"] -= 55 * _YEAR_NS
        if not marked:
            events = content["traceEvents"]
            content["traceEvents"] = [e for e in events if "ProfilerStep" not in e["name"]]
        (folder / path.name.removesuffix(".gz")).write_text(json.dumps(content))
    return open_trace(folder, OpenOptions(cache=False))


def rows(trace: Trace, name: str) -> Any:
    """Rows without times on the ranks' clocks; why there are none, where it is refused."""
    try:
        table = ask_trace(trace, name).table
    except HtkError as error:
        return type(error)
    return table.drop_columns([c for c in table.column_names if c in ABSOLUTE_TIMES]).to_pylist()
