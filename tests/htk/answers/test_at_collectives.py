"""The critical path cut at collectives is that of one graph of all ranks, bit for bit: of jobs of
many kinds, whole and damaged, whichever ranks are worked on together."""

import gzip
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from htk.analyses import find_analysis
from htk.answers import at_collectives
from htk.answers.ask import ask_trace
from htk.answers.at_collectives import step_path_in_parts
from htk.answers.table import table_of_answer
from htk.base.core.analysis import coverage_of
from htk.base.errors import HtkError, MissingTable
from htk.base.spread.workplace import Workplace
from htk.faces.cli.main import htk
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from tests.thinned import thinned

SIZES = "--layers 2 --hidden 64 --heads 2 --ffn 128 --vocab 100 --seq 32 --micro-batch 1"
SAMPLES = Path(__file__).parents[3] / "sample_traces"
PATH = find_analysis("critical_path")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
Event = dict[str, Any]
Damage = Callable[[list[Event], random.Random], list[Event]]


def _of_nccl(event: Event) -> bool:
    return "nccl" in str(event.get("name")).lower()


def without_marks(events: list[Event], dice: random.Random) -> list[Event]:
    return [e for e in events if not str(e.get("name")).startswith("ProfilerStep")]


def without_collectives(events: list[Event], dice: random.Random) -> list[Event]:
    return [e for e in events if not _of_nccl(e)]


def some_collectives_lost(events: list[Event], dice: random.Random) -> list[Event]:
    return [e for e in events if not _of_nccl(e) or dice.random() < 0.8]


def cut_off(events: list[Event], dice: random.Random) -> list[Event]:
    """The recording ends early, within collectives too."""
    begins = sorted(float(e["ts"]) for e in events if e.get("ph") == "X")
    last = begins[int(len(begins) * dice.uniform(0.4, 0.97))]
    return [e for e in events if float(e.get("ts", 0)) < last]


def on_more_streams(events: list[Event], dice: random.Random) -> list[Event]:
    for event in events:
        if event.get("cat") == "kernel" and dice.random() < 0.15:
            event["tid"] = event["args"]["stream"] = 99
    return events


def point_to_point(events: list[Event], dice: random.Random) -> list[Event]:
    for event in events:
        if _of_nccl(event):
            event["name"] = event["name"].replace("AllReduce", "SendRecv")
    return events


def launches_unlinked(events: list[Event], dice: random.Random) -> list[Event]:
    return [e for e in events if e.get("cat") != "ac2g" or dice.random() < 0.9]


def backward_untold(events: list[Event], dice: random.Random) -> list[Event]:
    return [e for e in events if e.get("cat") != "fwdbwd"]


def of_the_host_alone(events: list[Event], dice: random.Random) -> list[Event]:
    return [e for e in events if e.get("cat") not in GPU]


def without_launches(events: list[Event], dice: random.Random) -> list[Event]:
    return [e for e in events if e.get("cat") not in ("cuda_runtime", "cuda_driver")]


FSDP = "--nodes 2 --gpus-per-node 3 --strategy hybrid_shard"
TENSORS = "--nodes 2 --gpus-per-node 4 --tensor-parallel 2 --strategy hybrid_shard"
FOUR = "--nodes 1 --gpus-per-node 4"
# A job, and which damage its ranks have; None: the file is missing.
JOBS: list[tuple[str, dict[int, Damage | None]]] = [
    (f"{TENSORS} --clock-offset-us 400 --clock-drift-ppm 20", {}),
    (f"{TENSORS} --clocks process --clock-offset-us 300 --stagger-us 500", {3: None}),
    (f"{FOUR} --strategy ddp --accumulation 2 --unnamed-groups", {}),
    (f"{FOUR} --strategy ddp --experts 4 --active-experts 2 --expert-parallel 4 --noise 0.2", {}),
    (f"{FOUR} --context-parallel 2 --synchronous --no-sync-records", {}),
    (f"{FOUR} --tensor-parallel 2 --noise 0 --jitter-ns 0", {}),  # ends that tie
    (f"{FSDP} --fsdp 1 --queue 20 --no-metadata --programmatic", {}),
    (f"{FSDP} --cut-last-step --heavy-tails --checkpointing", {}),
    (f"{FOUR} --steps 1", {}),  # a lone step, which is repeated
    (f"{FOUR} --steps 1", {1: on_more_streams}),
    (f"{FOUR} --tensor-parallel 2", dict.fromkeys(range(4), point_to_point)),
    (f"{FOUR} --tensor-parallel 2", dict.fromkeys(range(4), without_collectives)),
    (f"{FOUR} --tensor-parallel 2", dict.fromkeys(range(4), without_marks)),
    (f"{FSDP} --fsdp 1", {0: some_collectives_lost, 4: some_collectives_lost}),
    (f"{FSDP} --steps 4", {0: cut_off}),
    (f"{FSDP} --steps 4", {2: cut_off, 3: on_more_streams, 5: some_collectives_lost}),
    (f"{FSDP} --no-sync-records", {1: backward_untold, 2: launches_unlinked}),
    (FOUR, {2: of_the_host_alone}),
    (FOUR, {0: without_launches}),
    (FOUR, {0: without_marks, 3: without_collectives}),
    (f"{FOUR} --steps 2", dict.fromkeys(range(4), of_the_host_alone)),
    (f"{FOUR} --steps 2", dict.fromkeys(range(4), without_launches)),
]


def written(folder: Path, job: str, damage: dict[int, Damage | None], seed: int) -> Trace:
    """Return a simulated job whose files are so damaged."""
    words = f"simulate --model tiny {SIZES} {job} --seed {seed}".split()
    result = CliRunner().invoke(htk, [*words, "-o", str(folder)])
    assert result.exit_code == 0, result.output
    for rank, damaged in damage.items():
        file = folder / f"rank{rank}.pt.trace.json.gz"
        if damaged is None:
            file.unlink()
            continue
        read = json.loads(gzip.decompress(file.read_bytes()))
        read["traceEvents"] = damaged(read["traceEvents"], random.Random(seed))
        file.write_bytes(gzip.compress(json.dumps(read).encode(), 1))
    return open_trace(folder)


def parts_of(trace: Trace, ranks: int) -> list[Trace]:
    """Return so many ranks at a time."""
    whose = list(dict.fromkeys(file.rank for file in trace.selected_files))
    dealt = [whose[k : k + ranks] for k in range(0, len(whose), ranks)]
    return [trace.part([f for f in trace.selected_files if f.rank in own]) for own in dealt]


def answers(make: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """Return rows and coverage of each kind of answer, or why there is none."""
    found: list[Any] = []
    for by in ("kind", "event", "piece"):
        try:
            table = make({"by": by, "n": 7})
        except HtkError as error:
            found.append(f"{type(error).__name__}: {error}")
        else:
            found.append((table.to_pylist(), coverage_of(table), table.schema))
    return found


def differences(trace: Trace, sizes: Sequence[int], step: int | None) -> list[int]:
    """Return the sizes of parts from which another answer is made than from all at once."""
    whole = answers(lambda options: table_of_answer(trace, PATH, {**options, "step": step}))

    def cut(options: dict[str, Any]) -> Any:
        path = step_path_in_parts(trace, parts, step)
        if path is None:  # nothing to replay, or delays are kept: all ranks at once tell
            of_all = table_of_answer(trace, PATH, {**options, "step": step})
            assert coverage_of(of_all)["verdict"] != "trusted"
            return of_all
        asked = PATH.filled({**options, "step": step})
        return PATH.checked(PATH.spread(asked).finish(path, **asked))  # type: ignore[attr-defined]

    different = []
    for ranks in sizes:
        parts = parts_of(trace, ranks)
        if answers(cut) != whole:
            different.append(ranks)
    return different


@pytest.mark.parametrize("number", thinned(range(len(JOBS)), 10))
def test_parts_of_any_size_give_the_path_of_all_ranks(number: int, tmp_path: Path) -> None:
    trace = written(tmp_path, *JOBS[number], number)
    sizes = [1 + number % 3, len(trace.ranks)]
    # The last step: the first of two is not whole, which is refused sooner or later than the rest.
    for step in {None, *sorted(trace._known_steps)[-1:]}:
        assert differences(trace, sizes, step) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(60))
def test_jobs_and_damage_at_random_give_the_path_of_all_ranks(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    job, damage = dice.choice(JOBS)
    more = [None, *(own for _, every in JOBS for own in every.values())]
    damage = dict(damage) | {k: dice.choice(more) for k in range(4) if dice.random() < 0.2}
    trace = written(tmp_path, job, damage, seed + 100)
    step = dice.choice([None, *sorted(trace._known_steps)])
    assert differences(trace, [1, dice.randint(1, max(len(trace.ranks), 1))], step) == []


@pytest.mark.parametrize("sample", ["simulated/llama2-7b", "kineto/rank*.pt.trace.json"])
def test_samples_give_the_path_of_all_ranks(sample: str) -> None:
    trace = open_trace(SAMPLES / sample)
    assert len(trace.ranks) > 1
    assert differences(trace, [1, 3], None) == []


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return written(tmp_path_factory.mktemp("job"), TENSORS, {}, 5)


def in_little_memory(trace: Trace) -> Trace:
    return replace(trace, work=Workplace(memory_bytes=1))


@pytest.mark.parametrize(
    "narrowed", thinned([{"ranks": [1, 2, 5]}, {"ranks": [4]}, {"steps": [11]}, {}])
)
def test_little_memory_gives_the_same_answer(job: Trace, narrowed: dict[str, Any]) -> None:
    trace = job.sel(**narrowed)
    for options in ({"by": "event", "n": 3}, {"by": "piece"}, {"step": 11}):
        answer, again = (
            ask_trace(each, "critical_path", **options) for each in (trace, in_little_memory(trace))
        )
        assert again.table.equals(answer.table) and answer.table.num_rows
        assert dict(again.coverage) == dict(answer.coverage)


def test_graphs_that_were_not_kept_are_made_again(
    job: Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a machine that has not made them, or on a full disk."""
    made = []
    own = at_collectives.part_of
    monkeypatch.setattr(at_collectives, "part_of", lambda *given: made.append(given) or own(*given))
    assert differences(job, [2], None) == [] and len(made) == 3 * 4  # three kinds of answer
    made.clear()
    monkeypatch.setattr(at_collectives, "_new_folder", lambda _: tmp_path / "missing")
    assert differences(job, [2], None) == [] and len(made) > 2 * 3 * 4


def test_nothing_of_it_is_left_on_disk(job: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    own = at_collectives._new_folder
    monkeypatch.setattr(
        at_collectives, "_new_folder", lambda root: folders.append(own(root)) or folders[-1]
    )
    ask_trace(in_little_memory(job), "critical_path", by="piece")
    assert len(folders) == 1 and not folders[0].exists()
    with pytest.raises(MissingTable, match="step 99 is not whole"):
        ask_trace(in_little_memory(job), "critical_path", step=99)
    assert len(folders) == 2 and not folders[1].exists()


def test_a_job_that_fits_is_answered_from_one_graph(
    job: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_collectives, "step_path_in_parts", None)
    assert ask_trace(job, "critical_path", by="piece").table.num_rows
