"""Pipelines: the order of passes and messages by hand, their bubble, and what their files tell."""

from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from htk.base.errors import UsageError
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.groups import process_groups
from htk.recording.simulate.host import SimulatedHost
from htk.recording.simulate.instructions import COMPUTE, Activity, RankProgram
from htk.recording.simulate.pipeline import PipelineSchedule
from htk.recording.simulate.schedule import Schedule
from htk.recording.simulate.stages import pipeline_stages
from tests.htk.recording.simulate.simulated_trace import written
from tests.thinned import thinned

PIPELINE = Config(
    model="own", layers=8, hidden=256, heads=4, kv_heads=2, ffn=512, vocab=1000, seq=128, steps=2,
    gpus_per_node=4, pipeline_parallel=4, accumulation=4, strategy="ddp",
    noise=0.0, jitter_ns=0, contention=False, stacks=False,
)  # fmt: skip
MS = 1_000_000


def spelled(schedule: PipelineSchedule) -> str:
    """F1 is the first micro-batch's forward; [>F1 <B1] sends it on and takes that backward."""
    words = []
    for item in schedule.items():
        if isinstance(item, list):
            sides = [
                f"{'>' if m.kind == 'send' else '<'}{m.of.way[0].upper()}{m.of.micro_batch + 1}"
                for m in item
            ]
            words.append(f"[{' '.join(sides)}]")
        else:
            words.append(f"{item.way[0].upper()}{item.micro_batch + 1}")
    return " ".join(words)


def test_one_forward_one_backward_by_hand() -> None:
    stages = [spelled(PipelineSchedule(stage, 3, 1, 3)) for stage in range(3)]
    assert stages == [
        "F1 [>F1] F2 [>F2] F3 [>F3 <B1] B1 [<B2] B2 [<B3] B3",
        "[<F1] F1 [>F1] [<F2] F2 [>F2 <B1] B1 [>B1 <F3] F3 [>F3 <B2] B2 [>B2] [<B3] B3 [>B3]",
        "[<F1] F1 B1 [>B1 <F2] F2 B2 [>B2 <F3] F3 B3 [>B3]",
    ]


SHAPES = [
    (stages, chunks, batches)
    for stages, chunks, batches in product((2, 3, 4, 5), (1, 2, 3), (1, 2, 4, 6, 8, 12, 15))
    if chunks == 1 or batches % stages == 0
]


@pytest.mark.parametrize(("stages", "chunks", "batches"), SHAPES)
def test_messages_of_a_pair_are_taken_in_the_order_in_which_they_are_sent(
    stages: int, chunks: int, batches: int
) -> None:
    """NCCL pairs the messages of two ranks by order alone: each must be the one that was meant."""
    sent: dict[tuple[int, int], list[Any]] = defaultdict(list)
    taken: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for stage in range(stages):
        schedule = PipelineSchedule(stage, stages, chunks, batches)
        assert sorted(schedule.passes()) == sorted(
            (way, chunk, batch)
            for way, chunk, batch in product(("forward", "backward"), range(chunks), range(batches))
        )
        for call in (item for item in schedule.items() if isinstance(item, list)):
            for message in call:
                position = message.of.chunk * stages + stage
                other = (position + message.shift) % stages
                if message.kind == "send":
                    what = message.of.way, position, message.of.micro_batch
                    sent[stage, other].append(what)
                else:
                    what = message.of.way, position + message.shift, message.of.micro_batch
                    taken[other, stage].append(what)
    assert sent == taken
    edges = stages * chunks - 1
    assert sum(map(len, sent.values())) == 2 * edges * batches


def artificial(config: Config, forward_ns: int, backward_ns: int) -> list[RankProgram]:
    """Each pass is one kernel, which each chunk shares evenly."""
    programs = []
    for stage in pipeline_stages(config):
        host = SimulatedHost(config, stage)
        shape = config.pipeline_parallel, config.virtual_stages, config.accumulation
        for item in PipelineSchedule(stage.number, *shape).items():
            if isinstance(item, list):
                host.exchange("pipeline", [(m.kind, m.shift) for m in item], 8)
            else:
                ns = forward_ns if item.way == "forward" else backward_ns
                each = ns // config.virtual_stages
                host.launch(Activity(item.way, "compute", COMPUTE, each))
        programs.append(host.program)
    return programs


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(
    ("stages", "chunks", "batches"), [(2, 1, 4), (4, 1, 8), (4, 1, 2), (4, 2, 8), (2, 4, 6)]
)
def test_a_step_is_longer_by_the_bubble(
    stages: int, chunks: int, batches: int, batched: bool
) -> None:
    """Stages wait (p - 1)/v forwards and backwards: a step takes m + (p - 1)/v of them."""
    job = check_config(
        replace(
            PIPELINE, gpus_per_node=stages, pipeline_parallel=stages, virtual_stages=chunks,
            accumulation=batches, batched_messages=batched, layers=16,
        )
    )  # fmt: skip
    schedule = Schedule(job, artificial(job, 10 * MS, 20 * MS), process_groups(job))
    timed = schedule.step(10)
    ends = [stage.gpu_end.max() for stage in timed]
    step = max(ends) - min(stage.gpu_start[stage.gpu_start > 0].min() for stage in timed)
    assert step == pytest.approx((batches + (stages - 1) / chunks) * 30 * MS, rel=0.01)


LAYOUTS: dict[str, dict[str, Any]] = {
    "batched": {},
    "single": {"batched_messages": False},
    "interleaved": {"pipeline_parallel": 2, "virtual_stages": 2, "layers": 4},
    "replicas": {"nodes": 2, "gpus_per_node": 4, "noise": 0.02, "jitter_ns": 5000},
    "tensor": {"gpus_per_node": 8, "tensor_parallel": 2, "pipeline_parallel": 2},
    "sharded": {"gpus_per_node": 4, "pipeline_parallel": 2, "strategy": "full_shard"},
    "again": {"pipeline_parallel": 2, "gpus_per_node": 2, "checkpointing": True},
}


@pytest.fixture(scope="module", params=thinned(LAYOUTS.values()), ids=LAYOUTS)
def layout(request: Any, tmp_path_factory: Any) -> tuple[Config, Any, Any]:
    config = replace(PIPELINE, **request.param)
    return config, *written(config, tmp_path_factory.mktemp("layout"))


def test_calls_with_messages_are_the_true_ones(layout: tuple[Config, Any, Any]) -> None:
    _, trace, truth = layout
    true = sorted(
        (call["rank"], call["wait_ns"], call["transfer_ns"]) for call in truth["exchanges"]
    )
    rows = trace.collective_times().to_pylist()
    messages = [row for row in rows if row["type"] in ("send", "recv", "send_recv")]
    found = sorted((row["rank"], row["wait_ns"], row["transfer_ns"]) for row in messages)
    assert found == true and true


def test_each_message_is_told_by_both_its_ends(layout: tuple[Config, Any, Any]) -> None:
    config, _, truth = layout
    ends: dict[tuple[int, ...], dict[str, Any]] = defaultdict(dict)
    for call in truth["exchanges"]:
        for message in call["messages"]:
            side = ends[message["from"], message["to"], message["number"]]
            assert message["type"] not in side
            side[message["type"]] = call | message
    stages, chunks = config.pipeline_parallel, config.virtual_stages
    pipelines = config.ranks // stages
    edges = stages * chunks - 1
    assert len(ends) == 2 * edges * pipelines * config.accumulation * config.steps
    for side in ends.values():
        send, recv = side["send"], side["recv"]
        assert send["bytes"] == recv["bytes"] == 2 * 128 * 256
        assert send["moved_ns"] == recv["moved_ns"]
        latest = max(send["start_ns"], recv["start_ns"])
        assert min(send["end_ns"], recv["end_ns"]) >= latest + send["moved_ns"]
    for call in truth["exchanges"]:
        begins = [
            max(side["send"]["start_ns"], side["recv"]["start_ns"])
            for side in (ends[m["from"], m["to"], m["number"]] for m in call["messages"])
        ]
        assert call["wait_ns"] == max(begins) - call["start_ns"] >= 0


def test_stages_share_layers_operations_and_gradients(tmp_path: Path) -> None:
    config = replace(PIPELINE, nodes=2, gpus_per_node=4)
    _, truth = written(config, tmp_path)
    _, alone = written(replace(config, pipeline_parallel=1), tmp_path / "alone")
    stages = [truth["ranks"][2 * stage] for stage in range(4)]
    assert [stage["layers"] for stage in stages] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    every = sum(stage["model_flops_per_step"] for stage in stages)
    assert every == alone["model_flops_per_rank_and_step"]
    model = config.decoder
    held = [stage.held_parameters for stage in pipeline_stages(config)]
    assert sum(held) == model.parameters
    for stage, parameters in zip(stages, held, strict=True):
        wire = stage["steps"][0]["wire_bytes"] - sum(
            message["bytes"]
            for call in truth["exchanges"]
            for message in call["messages"]
            if message["from"] == stage["rank"] == call["rank"] and call["step"] == 10
        )
        assert wire == pytest.approx(2 * parameters, rel=1e-4)  # all-reduce by two


@pytest.mark.parametrize(
    ("plant", "links"),
    [
        ("slow_link:stage=1,factor=5", {(1, 2), (2, 1)}),
        ("slow_link:node=1,factor=5", {(1, 2), (2, 1)}),
    ],
)
def test_a_slow_link_of_a_pipeline_is_that_of_two_stages(
    plant: str, links: set[tuple[int, int]], tmp_path: Path
) -> None:
    config = replace(PIPELINE, nodes=2, gpus_per_node=2)
    times = []
    for plants in ((), (plant,)):
        folder = tmp_path / str(len(plants))
        _, truth = written(replace(config, plants=plants), folder)
        times.append(
            {
                (m["from"], m["to"], m["number"]): m["moved_ns"]
                for call in truth["exchanges"]
                for m in call["messages"]
            }
        )
    for key, healthy in times[0].items():
        assert times[1][key] == pytest.approx(healthy * (5 if key[:2] in links else 1), abs=5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pipeline_parallel": 3}, "must divide layers .8. and groups of ranks .4.: take 2 or 4"),
        ({"virtual_stages": 3}, "layers of a stage .2.: take 2"),
        ({"virtual_stages": 2, "accumulation": 6}, "multiple of 4 .*: take 4 or 8"),
        ({"pipeline_parallel": 1, "virtual_stages": 2}, "goes with pipeline_parallel"),
        ({"tensor_parallel": 4}, "kv_heads .2.: take 2"),
        ({"plants": ("slow_link:stage=3",)}, "stage is 3, and must be of 0 to 2"),
    ],
)
def test_what_cannot_be_names_the_nearest_that_can(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_config(replace(PIPELINE, **change))
