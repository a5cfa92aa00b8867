"""Links of several files made at once, against those of each file made by itself."""

import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.derived import registry
from htk.derived.together import MADE_TOGETHER, links_for, made_together
from htk.io.entry import MemoryEntry
from htk.schema import TABLES
from htk.trace import linking
from htk.trace.file import TraceFile
from htk.trace.opening import OpenOptions, open_trace
from htk.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

SAMPLES = Path(__file__).parents[3] / "sample_traces"
Read = Callable[[str], pa.Table]


def alone(read: Read, name: str) -> pa.Table:
    """Return a table of one file, made by its maker of that file's tables."""
    if name in TABLES:
        return read(name)
    maker = registry.maker(name)
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


@cache
def recordings() -> list[Read]:
    folders = ("recorded/ddp", "recorded/fsdp2", "recorded/compiled", "recorded/transformer")
    named = [
        SAMPLES / name for name in (*folders, "simulated/llama2-7b", "kineto/rank0.pt.trace.json")
    ]
    return [f for path in named for f in files_of(open_trace(path, OpenOptions(cache=False)))]


@pytest.mark.parametrize("seed", range(6))
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


@pytest.mark.parametrize("seed", range(60))
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
    found = {name: together.tables[name] for name in names}
    assert all(isinstance(f.entry, MemoryEntry) for f in together.files)
    monkeypatch.setattr(linking, "_FEWEST", 100)
    apart = open_trace(tmp_path, OpenOptions(cache=False))
    for name in names:
        assert found[name].to_pydict() == apart.tables[name].to_pydict()


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
    made = TraceFile._made

    def noted(self: TraceFile, name: str) -> pa.Table:
        calls.append(name)
        return made(self, name)

    monkeypatch.setattr(TraceFile, "_made", noted)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert trace.tables["kernel_links"]["launch_row"].to_pylist() == list(range(5))
    assert not calls
