"""Links of several files made at once, against those of each file made by itself."""

import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.base.io.entry import MemoryEntry
from htk.base.schema import TABLES
from htk.quantities.derived import registry
from htk.quantities.derived.together import MADE_TOGETHER, links_for, made_together
from htk.traces.trace import linking
from htk.traces.trace.file import TraceFile
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[4] / "sample_traces"
Read = Callable[[str], pa.Table]
OWN_TEXTS = {"idle_causes": ("cause",), "stalls": ("cause", "name")}


def alone(read: Read, name: str) -> pa.Table:
    """Return a table of one file, made by its maker of that file's tables."""
    if name in TABLES:
        return read(name)
    maker = registry.find_maker(name)
    return maker.function(*(alone(read, other) for other in maker.reads))


def files_of(trace: Trace) -> list[Read]:
    return [file.parsed_table for file in trace.files]


def assert_as_alone(files: list[Read]) -> None:
    made = made_together(files)
    assert set(made) == set(MADE_TOGETHER)
    for name, tables in made.items():
        for file, table in zip(files, tables, strict=True):
            expected = alone(file, name)
            assert table.schema.equals(expected.schema, check_metadata=True)
            assert table.to_pydict() == expected.to_pydict()
            table.validate(full=True)
            for texts in OWN_TEXTS.get(name, ()):
                assert table[texts].chunk(0).dictionary == expected[texts].chunk(0).dictionary
                assert table[texts].chunk(0).indices == expected[texts].chunk(0).indices


@cache
def recordings() -> list[Read]:
    folders = ("recorded/ddp", "recorded/fsdp2", "recorded/compiled", "recorded/transformer")
    named = [
        SAMPLES / name for name in (*folders, "simulated/llama2-7b", "kineto/rank0.pt.trace.json")
    ]
    return [f for path in named for f in files_of(open_trace(path, OpenOptions(cache=False)))]


@pytest.mark.parametrize("seed", thinned(range(6)))
def test_recordings(seed: int) -> None:
    chance = random.Random(seed)
    assert_as_alone(chance.choices(recordings(), k=chance.randint(1, 9)))


def random_file(chance: random.Random) -> list[Event]:
    """Return events that use the same ids, threads, steps and names as those of any other file."""
    moment = partial(chance.uniform, 0, 400)
    events: list[Event] = []
    for _ in range(chance.choice([0, 5, 40])):
        event = op(chance.choice(NAMES), moment(), chance.uniform(0, 40), chance.randint(1, 4))
        forward_thread = chance.choice([0, 0, 1, 2])
        event["args"] = {"External id": chance.randint(0, 9)}
        if chance.random() < 0.7:
            event["args"] |= {
                "Sequence number": chance.randint(0, 6),
                "Fwd thread id": forward_thread,
            }
        events.append(event)
    events += [
        launch(chance.randint(0, 12), moment(), chance.uniform(0, 9), chance.randint(1, 5))
        | {"name": chance.choice(CALLS)}
        for _ in range(chance.choice([0, 12]))
    ]
    for _ in range(chance.choice([0, 15])):
        event = kernel(
            "gemm", moment(), chance.uniform(0, 20), chance.randint(0, 14), chance.randint(7, 8)
        )
        event["args"]["External id"] = chance.randint(0, 9)
        events.append(event)
    for _ in range(chance.choice([0, 6])):
        events.append(arrow(chance.randint(1, 14), moment(), chance.randint(1, 4)))
    for _ in range(chance.choice([0, 8])):
        events.append(
            span(
                chance.choice(("range", "forward", "loss backward")),
                moment(),
                chance.uniform(0, 90),
                chance.randint(1, 4),
            )
        )
    first = chance.randint(0, 3)
    events += [
        step(first + k, 90.0 * k, chance.uniform(20, 90)) for k in range(chance.randint(0, 4))
    ]
    chance.shuffle(events)
    return events


NAMES = (
    "aten::mm",
    "aten::add",
    "autograd::engine::evaluate_function: MmBackward0",
    "CheckpointFunctionBackward",
    "Optimizer.step#SGD.step",
    "x",
)
CALLS = ("cudaLaunchKernel", "cudaGraphLaunch", "cudaStreamBeginCapture", "cudaStreamEndCapture")


def arrow(flow: int, ts: float, tid: int) -> dict[str, Any]:
    return {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": flow, "pid": 100, "tid": tid, "ts": ts}


@pytest.mark.parametrize("seed", thinned(range(60), 20))
def test_made_up_files(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for rank in range(chance.randint(2, 7)):
        base = chance.choice([0, 5, 10**18])
        write(
            tmp_path / f"rank{rank}.json",
            op("x", 1, 1),
            *random_file(chance),
            **of_rank(rank, 8, base),
        )
    assert_as_alone(files_of(open_trace(tmp_path, OpenOptions(cache=False))))


def late_file(chance: random.Random) -> list[Event]:
    """Return events of a file whose GPUs are idle, and whose host is late for many reasons: also
    for lack of operators, of records of waits, of a main thread."""
    moment = partial(chance.uniform, 0, chance.choice([1000, 9000]))
    length = partial(chance.choice, (0, 3, 40, 300, 1500))
    launching = chance.choice(
        [LAUNCHING, LAUNCHING, [name.replace("cuda", "hip") for name in LAUNCHING]]
    )
    threads = chance.choice([[1], [1, 2], [1, 2, 3]])
    events: list[Event] = []
    for k in range(chance.choice([0, 1, 25])):
        called = moment()
        begin = called + chance.choice([2, 20, 400])
        call = launch(k, called, length(), chance.choice(threads))
        run = kernel(chance.choice("ab"), begin, length(), k, chance.choice([7, 8]))
        run["args"]["device"] = run["pid"] = chance.choice([0, 0, 1])
        if chance.random() < 0.2:
            run |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
            run["args"]["bytes"] = chance.choice([0, 10**6])
        if chance.random() < 0.1:
            del run["args"]["stream"]
        events += [call | {"name": launching[0]}, run]
    first = moment()
    for k in range(chance.choice([0, 3])):  # back to back, but for a tick of the clock
        events.append(kernel("c", first + 5 * k, 4.98))
    for kind, names, tids in (
        ("cuda_runtime", launching, threads),
        ("cpu_op", chance.choice([(), NAMES]), [*threads, 4]),
        ("user_annotation", ("next_batch", "range", "gc"), [1, 5]),
        ("python_function", ("gc.collect", "f", "dataloader.py(3): __next__"), [1, 2]),
        ("overhead", ("Buffer Flush", *["Lazy Function Loading"] * 3), [1]),
        ("cuda_sync", chance.choice([(), SYNCS]), [7, 8]),
    ):
        for _ in range(chance.choice([0, 3, 20]) if names else 0):
            tid = chance.choice(tids)
            event = span(chance.choice(names), moment(), length(), tid) | {"cat": kind}
            events.append(event | ({"args": {"stream": tid}} if kind == "cuda_sync" else {}))
    if chance.random() < 0.7:
        events.append(step(3, 0, 6000) | {"tid": chance.choice([1, 2, 6])})
    chance.shuffle(events)
    return events


LAUNCHING = (
    *("cudaLaunchKernel", "cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaMalloc"),
    *("cudaMemcpyAsync", "cudaModuleLoad", "cudaFuncGetAttributes"),
)
SYNCS = ("Stream Wait Event", "event_wait", "Stream Sync")


@pytest.mark.parametrize("seed", thinned(range(80), 20))
def test_files_with_idle_gpus_and_late_hosts(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for rank in range(chance.randint(2, 7)):
        path, base = tmp_path / f"rank{rank}.json", chance.choice([0, 5, 10**18])
        events = late_file(chance) or [op("x", 1, 1)]
        write(path, *events, **of_rank(rank, 8, base))
    assert_as_alone(files_of(open_trace(tmp_path, OpenOptions(cache=False))))


@pytest.mark.parametrize("name", OWN_TEXTS)
def test_what_is_made_of_links_takes_them_as_they_are_kept(name: str, tmp_path: Path) -> None:
    chance = random.Random(5)
    for rank in range(6):
        events = late_file(chance) + random_file(chance)
        write(tmp_path / f"rank{rank}.json", op("x", 1, 1), *events, **of_rank(rank, 8))
    files = files_of(open_trace(tmp_path, OpenOptions(cache=False)))
    made = made_together([partial(alone, file) for file in files], [name])
    assert {*made} == {name}
    for file, table in zip(files, made[name], strict=True):
        assert table.to_pydict() == alone(file, name).to_pydict()


def test_files_whose_numbers_do_not_fit_are_not_made_together(tmp_path: Path) -> None:
    for rank in range(2):
        steps = [step(0, 0, 9), step(2**30 + 5, 10, 9)]
        write(tmp_path / f"rank{rank}.json", op("x", 1, 1), *steps, **of_rank(rank))
    files = files_of(open_trace(tmp_path, OpenOptions(cache=False)))
    assert files[0]("annotations")["step"].to_pylist() == [0, 2**30 + 5]
    assert made_together(files) == {}


def test_a_recording_of_small_files_has_the_same_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(3)
    for rank in range(6):
        write(
            tmp_path / f"rank{rank}.json", op("x", 1, 1), *random_file(chance), **of_rank(rank, 6)
        )
    names = [name for name in registry.PER_FILE if links_for(name)]
    together = open_trace(tmp_path, OpenOptions(cache=False))
    narrowed = open_trace(tmp_path, OpenOptions(cache=False)).sel(to_ns=150_000)
    found = {name: [trace.tables[name] for trace in (together, narrowed)] for name in names}
    assert all(isinstance(f.entry, MemoryEntry) for f in together.files)
    assert 0 < narrowed.tables["kernel_links"].num_rows < together.tables["kernel_links"].num_rows
    monkeypatch.setattr(linking, "_FEWEST", 100)
    apart = open_trace(tmp_path, OpenOptions(cache=False))
    for name in names:
        expected = [trace.tables[name] for trace in (apart, apart.sel(to_ns=150_000))]
        for table, alone_made in zip(found[name], expected, strict=True):
            assert table.to_pydict() == alone_made.to_pydict()


def test_links_are_made_once_for_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(5):
        write(
            tmp_path / f"rank{rank}.json",
            op("x", 1, 1),
            launch(1, 2),
            kernel("k", 3, 1, 1),
            **of_rank(rank, 5),
        )
    calls: list[str] = []
    made = TraceFile._make_derived

    def noted(self: TraceFile, name: str) -> pa.Table:
        calls.append(name)
        return made(self, name)

    monkeypatch.setattr(TraceFile, "_make_derived", noted)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert trace.tables["kernel_links"]["launch_row"].to_pylist() == list(range(5))
    assert calls == ["server_marks"]  # of the first rank, to see whether it serves
