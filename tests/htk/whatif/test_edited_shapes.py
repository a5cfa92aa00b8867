"""Shapes with other samples and lengths, by hand; and a written prediction beside the real job."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from htk.whatif.api import WhatIf, whatif
from htk.whatif.edited_shapes import SAME_SHAPES, EditedShapes, hide_shapes
from htk.whatif.predictions import NOTE
from tests.htk.whatif.simulated_job import written
from tests.thinned import thinned

TWICE_THE_BATCH = EditedShapes(4, 512, 8, 512)
TWICE_AS_LONG = EditedShapes(4, 512, 4, 1024)
SHARED = EditedShapes(4, 512, 8, 512, parts=2, widths=frozenset({8192}), sent=frozenset({96}))


@pytest.mark.parametrize(
    ("shapes", "shape", "edited"),
    [
        (TWICE_THE_BATCH, [4, 512], [8, 512]),
        (TWICE_THE_BATCH, [4, 12, 512, 64], [8, 12, 512, 64]),
        (TWICE_AS_LONG, [4, 12, 512, 64], [4, 12, 1024, 64]),
        (TWICE_AS_LONG, [48, 512, 512], [48, 1024, 1024]),  # scores of 12 heads
        (TWICE_THE_BATCH, [48, 512, 512], [96, 512, 512]),
        (TWICE_THE_BATCH, [2048, 768], [4096, 768]),
        (TWICE_THE_BATCH, [768, 2048], [768, 4096]),  # summed over tokens
        (TWICE_THE_BATCH, [2048], [4096]),
        (TWICE_THE_BATCH, [4096, 768], [8192, 768]),  # each token for two experts
        (TWICE_THE_BATCH, [4096], [4096]),  # parameters, as likely
        (TWICE_THE_BATCH, [768, 768], [768, 768]),
        (SHARED, [1024, 768], [2048, 768]),
        (SHARED, [8192, 768], [8192, 768]),
        (SHARED, [96], [192]),
    ],
)
def test_a_size_tells_by_its_place_what_it_counts(
    shapes: EditedShapes, shape: list[int], edited: list[int]
) -> None:
    assert shapes.shape(shape) == edited


EVENT = {
    "name": "aten::_flash_attention_forward",
    "args": {
        "Concrete Inputs": ["", "512", "[4, 512, 768]", "True", ""],
        "Input Strides": [[393216, 768, 64, 1], [393216, 1, 768], [], [[1]]],
        "Input Dims": [[4, 512, 12, 64], [4, 768, 512], [], [[2048]]],
    },
}


def test_strides_and_numbers_follow_shapes() -> None:
    args = json.loads(TWICE_AS_LONG.rewrite(json.dumps(EVENT).encode()))["args"]
    assert args["Input Dims"] == [[4, 1024, 12, 64], [4, 768, 1024], [], [[4096]]]
    assert args["Input Strides"] == [[786432, 768, 64, 1], [786432, 1, 768], [], [[1]]]
    assert args["Concrete Inputs"] == ["", "1024", "[4, 1024, 768]", "True", ""]


def test_operators_on_parameters_and_the_same_job_keep_their_shapes() -> None:
    of_parameters = json.dumps(EVENT | {"name": "fsdp::split_with_sizes_copy"}).encode()
    assert TWICE_AS_LONG.rewrite(of_parameters) == of_parameters
    text = json.dumps(EVENT).encode()
    assert SAME_SHAPES.rewrite(text) == text
    hidden = json.loads(hide_shapes(text))["args"]
    assert hidden["Input Dims"] == hidden["Input Strides"] == []


JOB = {"nodes": 1, "layers": 2, "micro_batch": 4, "seq": 512, "steps": 3, "stacks": False}
LAYOUTS: dict[str, dict[str, object]] = {
    "ddp": {"strategy": "ddp"},
    "fsdp": {"strategy": "full_shard"},
    "tp": {"strategy": "ddp", "tensor_parallel": 2, "sequence_parallel": True},
    "pp": {"strategy": "ddp", "pipeline_parallel": 2, "accumulation": 2},
}
EDITS: dict[str, tuple[str, dict[str, object]]] = {
    "batch": ("2x", {"micro_batch": 8}),
    "seq": ("2x", {"seq": 1024}),
}
ROUNDED = ("aten::mul",)  # of the simulator: elements that are no whole rows
TOLD = {
    "cpu_ops": ("name", "input_dims", "input_strides", "concrete_inputs"),
    "collectives": ("type", "group_size", "in_elements", "out_elements"),
    "memory": ("size_bytes", "allocated_bytes"),
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> "Simulated":
    return Simulated(tmp_path_factory.mktemp("jobs"))


class Simulated:
    """Jobs of the layouts, simulated when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, layout: str, change: dict[str, object]) -> Trace:
        folder = self.folder / "-".join([layout, *map(str, change.values())])
        if not folder.exists():
            written(folder, **(JOB | LAYOUTS[layout] | change))
        return open_trace(str(folder))


def counted(trace: Trace, table: str) -> Counter[tuple[object, ...]]:
    columns = (trace.tables[table][name].to_pylist() for name in TOLD[table])
    return Counter(row for row in zip(*columns, strict=True) if row[0] not in ROUNDED)


CASES = [(layout, edit) for layout in LAYOUTS for edit in EDITS]


@pytest.mark.parametrize(("layout", "edit"), thinned(CASES, 4))
def test_files_alone_read_as_the_job_that_is_simulated_with_the_edit(
    jobs: Simulated, tmp_path: Path, layout: str, edit: str
) -> None:
    value, change = EDITS[edit]
    asked = whatif(jobs.open(layout, {})).change(edit, value)
    asked.write(tmp_path / "predicted")
    (tmp_path / "predicted" / NOTE).unlink()
    alone = open_trace(str(tmp_path / "predicted"))
    truth = jobs.open(layout, change)
    of_step = truth.sel(steps=[asked.stage.graph.step or 0])
    for table in TOLD:
        assert counted(alone, table) == counted(of_step, table), table
    read, meant = WhatIf(alone).stage, WhatIf(truth).stage
    assert replace(read.job, gpu=None) == replace(meant.job, gpu=None)
    assert read.step_ns == pytest.approx(asked.answers()[0].step_ns, rel=0.005)
    back = WhatIf(alone).change(edit, "0.5x").answers()[0]
    assert back.step_ns == pytest.approx(asked.stage.step_ns, rel=0.03)
