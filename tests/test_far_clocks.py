"""Ranks on clocks that lie decades apart get the same answers as ranks on one clock."""

import random
from typing import Any

import pytest

from htk.analyses import ANALYSES
from htk.answers.ask import ask
from htk.errors import HtkError
from htk.schema import ABSOLUTE_TIMES
from htk.trace.opening import OpenOptions, open_trace
from htk.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

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


def rows(trace: Trace, name: str) -> Any:
    """Rows without times on the ranks' clocks; why there are none, where it is refused."""
    try:
        table = ask(trace, name).table
    except HtkError as error:
        return type(error)
    return table.drop_columns([c for c in table.column_names if c in ABSOLUTE_TIMES]).to_pylist()
