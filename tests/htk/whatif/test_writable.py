"""Edits that no recorded event shows are refused, and the command to use instead is named."""

from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.whatif.api import WhatIf, whatif
from tests.htk.whatif.simulated_job import written

JOB = {"nodes": 1, "layers": 2, "micro_batch": 4, "seq": 512, "steps": 3, "stacks": False}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> WhatIf:
    return whatif(str(written(tmp_path_factory.mktemp("recorded"), **JOB)))


OF_NO_RECORDING = {  # what no recorded event shows, by the edits that make it
    "accumulation=4": "other passes",
    "accumulation=2 pp=2": "other passes",
    "tp=2": "further collectives",
    "cp=2": "further collectives",
    "sharding=ddp": "further collectives",
    "checkpointing=on": "checkpointing on runs other kernels",
    "precision=tf32": "precision tf32 runs other kernels",
    "world=8": "other ranks or groups",
}


@pytest.mark.parametrize("edits", OF_NO_RECORDING)
def test_what_would_read_as_another_job_is_not_written(
    recorded: WhatIf, tmp_path: Path, edits: str
) -> None:
    asked = recorded
    for edit in edits.split():
        name, _, value = edit.partition("=")
        asked = asked.change(name, value)
    options = edits.split()[0].replace("=", " ")
    with pytest.raises(UsageError, match=f"{OF_NO_RECORDING[edits]}.*RECORDING.*--{options}"):
        asked.write(tmp_path / "predicted")
    assert not (tmp_path / "predicted").exists()


NO_CHANGE = ("accumulation=1", "pp=1", "tp=1", "cp=1", "world=2", "checkpointing=off",
             "precision=bf16", "sharding=full_shard")  # fmt: skip


def test_edits_to_what_is_so_already_are_written(recorded: WhatIf, tmp_path: Path) -> None:
    asked = recorded
    for edit in NO_CHANGE:
        name, _, value = edit.partition("=")
        asked = asked.change(name, value)
    assert len(asked.write(tmp_path / "same")) == 2
