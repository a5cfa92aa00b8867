"""Every question to every kind of trace: an answer, or a named reason; never a traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from htk.analyses import ANALYSES
from htk.answers.ask import ask_trace
from htk.base.errors import HtkError
from htk.faces.cli.main import run_command_line
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[1] / "sample_traces"


def nothing(folder: Path) -> Path:
    return write(folder / "t.json", **of_rank(0))


def metadata_only(folder: Path) -> Path:
    named = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "p"}}
    return write(folder / "t.json", named, **of_rank(0))


def cpu_only(folder: Path) -> Path:
    return write(folder / "t.json", step(0, 0, 9), op("aten::mm", 1, 2), op("aten::add", 4, 2))


def gpu_only(folder: Path) -> Path:
    return write(folder / "t.json", kernel("gemm", 1, 3, 1), kernel("add", 4, 0, 2))


def unlinked(folder: Path) -> Path:
    """Calls, and work that none of them launched; events of no length."""
    work = [kernel("gemm", 1, 3, 90), kernel("add", 4, 0, 91)]
    return write(folder / "t.json", op("aten::mm", 1, 3), launch(1, 2, 0), *work)


def no_steps(folder: Path) -> Path:
    events = [op("aten::mm", 1, 3), launch(1, 2), kernel("gemm", 3, 3, 1)]
    return write(folder / "t.json", *events)


def one_step(folder: Path) -> Path:
    events = [step(0, 0, 9), op("aten::mm", 1, 3), launch(1, 2), kernel("gemm", 3, 3, 1)]
    return write(folder / "t.json", *events, **of_rank(3, 8))


def graphs(folder: Path) -> Path:
    call = {**launch(5, 2), "name": "cudaGraphLaunch"}
    nodes = [kernel(f"k{n}", 4 + n, 1, 5) for n in range(4)]
    for place, node in enumerate(nodes):
        node["args"].update({"graph id": 3, "graph node id": place})
    return write(folder / "t.json", step(0, 0, 20), step(1, 20, 5), call, *nodes)


def mtia(folder: Path) -> Path:
    work = {**kernel("hccl::allreduce", 2, 3), "cat": "mtia_ccp_events"}
    call = {**launch(1, 1), "cat": "mtia_runtime", "name": "runFunction"}
    waited = {**kernel("event_wait", 6, 4), "cat": "mtia_ccp_events"}
    again = {**kernel("merge", 11, 2), "cat": "mtia_ccp_events"}
    return write(folder / "t.json", op("aten::mm", 0, 3), call, work, waited, again)


def rocm(folder: Path) -> Path:
    """Back to back with 1 ns between, streams as hex text, hip names."""
    events: list[Event] = [step(0, 0, 50)]
    for k in range(5):
        work = kernel("Cijk_Ailk_Bljk", 10 + 2.001 * k, 2, k + 1)
        work["args"]["stream"] = "0x0"
        call = {**launch(k + 1, 1 + k), "name": "hipLaunchKernel"}
        events += [op("aten::mm", 1 + k, 0.9), call, work]
    return write(folder / "t.json", *events)


def ranks(folder: Path) -> Path:
    """Two ranks of two steps with a collective each, the second rank late."""
    for rank in (0, 1):
        events: list[Event] = []
        for s in (0, 1):
            at = 100 * s
            wait = 0 if rank else 10
            events += [
                step(s, at, 100),
                span("forward", at + 1, 30),
                op("aten::mm", at + 2, 5),
                launch(10 * s + 1, at + 3),
                kernel("ampere_bf16_gemm", at + 5, 30, 10 * s + 1),
                launch(10 * s + 2, at + 6),
                kernel(
                    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    at + 50 - wait,
                    20 + wait,
                    10 * s + 2,
                    20,
                ),
            ]
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return folder


def flight_recorder(folder: Path) -> Path:
    return SAMPLES / "flight_recorder/hang_missing_rank_v2.10"


def benchmark(folder: Path) -> Path:
    return SAMPLES / "nccl_tests"


def nsight(folder: Path) -> Path:
    return SAMPLES / "nsight"


def rocpd(folder: Path) -> Path:
    return SAMPLES / "rocpd"


def xplane(folder: Path) -> Path:
    return SAMPLES / "xplane"


def job_rows(folder: Path) -> Path:
    return SAMPLES / "operation_rows/slow_worker.parquet"


def job_timeline(folder: Path) -> Path:
    return SAMPLES / "operation_timeline"


KINDS: tuple[Callable[[Path], Path], ...] = (
    nothing,
    metadata_only,
    cpu_only,
    gpu_only,
    unlinked,
    no_steps,
    one_step,
    graphs,
    mtia,
    rocm,
    ranks,
    flight_recorder,
    benchmark,
    nsight,
    rocpd,
    xplane,
    job_rows,
    job_timeline,
)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    found = {}
    for kind in KINDS:
        path = kind(tmp_path_factory.mktemp(kind.__name__))
        found[kind.__name__] = open_trace(path, OpenOptions(cache=False))
    return found


@pytest.mark.parametrize("kind", [nsight, rocpd, xplane])
def test_answers_to_recordings_of_other_tools_agree(
    kind: Callable[[Path], Path], tmp_path: Path
) -> None:
    assert run_command_line(["verify", str(kind(tmp_path)), "--no-cache"]) == 0


@pytest.mark.parametrize("kind", [k.__name__ for k in KINDS])
@pytest.mark.parametrize("name", ANALYSES)
def test_an_answer_or_a_reason(name: str, kind: str, traces: dict[str, Trace]) -> None:
    for options in _options(name):
        try:
            answer = ask_trace(traces[kind], name, **options)
        except HtkError as reason:
            assert len(str(reason)) > 20 and "\n" not in str(reason)
        else:
            answer.to_json()
            if "rank" in answer.table.column_names and traces[kind].ranks:
                ranks = answer.table["rank"].unique().to_pylist()
                assert set(ranks) <= {None, *traces[kind].ranks}


@pytest.mark.parametrize("name", thinned(ANALYSES, 3))
def test_a_selection_is_answered_too(name: str, traces: dict[str, Trace]) -> None:
    whole = traces["ranks"]
    for chosen in (
        whole.sel(ranks=[1]),
        whole.sel(steps=[1]),
        whole.sel(from_ns=10_000, to_ns=60_000),
        whole.sel(annotation="forward"),
        whole.sel(steps=[99]),
    ):
        try:
            ask_trace(chosen, name).to_json()
        except HtkError as reason:
            assert str(reason)


def _options(name: str) -> list[dict[str, Any]]:
    """The defaults, and every other choice of each option that has a few."""
    import typing

    from htk.analyses import find_analysis

    found: list[dict[str, Any]] = [{}]
    for option in find_analysis(name).options.values():
        kinds = [option.type, *typing.get_args(option.type)]
        for kind in kinds:
            if typing.get_origin(kind) is typing.Literal:
                found += [{option.name: v} for v in typing.get_args(kind) if v != option.default]
    return found
