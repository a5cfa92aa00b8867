"""Data-parallel groups of simulated jobs, whose ranks are known by their layout."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.data_groups import Position, data_network, data_positions
from htk.whatif.step_model import StepModel
from tests.htk.whatif.sharded_step import fsdp
from tests.htk.whatif.simulated_job import written
from tests.htk.whatif.small_step_model import small_model
from tests.thinned import thinned


@cache
def recorded(strategy: str, tensor: int, pipeline: int) -> StepModel:
    with TemporaryDirectory() as folder:
        layout = {"tensor_parallel": tensor, "pipeline_parallel": pipeline}
        many = {"accumulation": 2 * pipeline, "gpus_per_node": 4, "steps": 2}
        job = written(Path(folder), strategy=strategy, **layout, **many)
        return build_baseline(open_trace(str(job), OpenOptions(cache=False)).tables).model


@pytest.mark.parametrize(
    ("strategy", "tensor", "pipeline", "groups", "stride"),
    thinned(
        [
            ("ddp", 2, 1, [[0, 2, 4, 6], [1, 3, 5, 7]], 2),
            ("full_shard", 2, 1, [[0, 2, 4, 6], [1, 3, 5, 7]], 2),
            ("hybrid_shard", 2, 1, [[0, 2, 4, 6], [1, 3, 5, 7]], 2),
            ("full_shard", 1, 2, [[0, 1, 2, 3], [4, 5, 6, 7]], 1),
            ("ddp", 2, 2, [[0, 2], [1, 3], [4, 6], [5, 7]], 2),
        ]
    ),
)
def test_groups_of_a_layout(
    strategy: str, tensor: int, pipeline: int, groups: list[list[int]], stride: int
) -> None:
    model = recorded(strategy, tensor, pipeline)
    expected = {
        rank: Position(ranks[0], place) for ranks in groups for place, rank in enumerate(ranks)
    }
    assert data_positions(model) == expected
    assert data_network(model).stride == stride


def test_unlisted_groups_are_those_recorded_together() -> None:
    model = small_model(fsdp((0, 1)))
    positions = data_positions(model)
    assert set(positions) == {0, 1}
    assert data_network(model).stride == 1
