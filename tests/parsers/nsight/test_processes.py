"""Which rank each process of a report is: by its environment, or by its launcher's options."""

import json
from typing import Any

import pytest

from htk.parsers.nsight.processes import Launcher, Machine


def machine(command: list[str], environment: dict[str, str] | None = None, **more: Any) -> Machine:
    plain: dict[str, Any] = {"host": "n", "versions": {}, "gpus": [], "devices": {}}
    return Machine(environment or {}, command, **(plain | more))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --nnodes=2 --node_rank=1 --nproc_per_node=4 t.py", (None, 8, 1, 4)),
        ("/usr/bin/torchrun --nnodes 1 --nproc-per-node 8 t.py", (None, 8, 0, 8)),
        ("python -m torch.distributed.run --nnodes=2 --nproc-per-node=4 t.py", (None, 8, None, 4)),
        ("python -u -m torch.distributed.launch --nproc_per_node=4 t.py", (None, None, None, 4)),
        ("torchrun --nnodes=1:4 --nproc_per_node=gpu t.py", (None, None, None, None)),
        ("mpirun -n 4 t", (None, None, None, None)),
        ("ray start --nnodes=1", (None, None, 0, None)),
        ("xray start", (6, 9, None, None)),
        ("python t.py --model torchrun", (None, None, None, None)),  # among the first four words
        ("python a b c torchrun --nnodes=1", (6, 9, None, None)),
    ],
)
def test_launchers_say_how_many_and_processes_who_they_are(
    line: str, expected: tuple[int | None, ...]
) -> None:
    told = Launcher.from_machine(machine(line.split(), {"RANK": "6", "WORLD_SIZE": "9"}))
    assert (told.rank, told.world_size, told.node_rank, told.per_node) == expected


@pytest.mark.parametrize(
    ("environment", "rank", "size"),
    [
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, 3, 4),
        ({"PMIX_RANK": "2", "PMI_RANK": "1", "PMI_SIZE": "8"}, 2, 8),
        ({"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "5"}, 0, 1),
        ({"RANK": "4", "WORLD_SIZE": "4"}, None, None),
        ({"RANK": "-1"}, None, None),
        ({"RANK": "x", "WORLD_SIZE": "4"}, None, 4),
        ({}, None, None),
    ],
)
def test_the_environment_of_one_process(
    environment: dict[str, str], rank: int | None, size: int | None
) -> None:
    told = Launcher.from_machine(machine(["python", "t.py"], environment))
    assert (told.rank, told.world_size) == (rank, size)
    assert (told.rank_from == "environment") == (rank is not None)


def test_ranks_of_several_processes_follow_the_node() -> None:
    node = Launcher(None, 12, 2, 4)
    assert node.ranks(4) == [8, 9, 10, 11]
    assert node.ranks(3) == [None] * 3  # one of them was not recorded: which?
    assert Launcher(5, 8, None, None).ranks(1) == [5]
    assert Launcher(5, 8, None, None).ranks(2) == [None, None]
    assert Launcher(None, None, None, 1).ranks(1) == [None]
    assert Launcher(None, 3, 2, 1).ranks(1) == [2]


def test_the_gpu_of_a_process_comes_first_among_those_of_the_machine() -> None:
    """CUDA's device 0 of process 7 is the machine's GPU 2, its device 1 is not listed."""
    gpus: list[dict[str, object]] = [{"id": k, "name": f"gpu{k}"} for k in range(3)]
    own = machine([], gpus=gpus, devices={(7, 0): 2, (8, 0): 1})
    assert own.facts(7, 0, 5) == {
        "host": "n",
        "device_name": "gpu2",
        "device_count": 3,
        "device_properties": json.dumps([gpus[2], *gpus[:2]], separators=(",", ":")),
        "versions": None,
        "base_time_ns": 5,
    }
    named = [
        own.facts(pid, device, 0)["device_name"] for pid, device in ((8, 0), (9, 1), (7, None))
    ]
    assert named == ["gpu1", "gpu1", "gpu0"]
    empty = machine([]).facts(7, 0, 0)
    assert [empty[n] for n in ("device_name", "device_count", "device_properties")] == [None] * 3
