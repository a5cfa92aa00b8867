"""Record flight recorder dumps of gloo jobs that hang: `python sample_traces/gloo_dumps.py`.

Each job runs on this machine's CPU, makes three all_reduces as it should, and then hangs in its own
way. Its ranks dump what they recorded after a few seconds, as torch writes it, and are ended.
"""

import datetime
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

FOLDER = Path(__file__).parent / "flight_recorder"
_PATIENCE = 4  # seconds after which a rank is taken to hang


def ones(count: int = 1024) -> torch.Tensor:
    return torch.ones(count)


def missing(rank: int) -> None:
    """Rank 1 never comes to the fourth all_reduce."""
    if rank != 1:
        dist.all_reduce(ones())


def order(rank: int) -> None:
    """Rank 2 swaps an all_reduce and a broadcast."""
    if rank == 2:
        dist.broadcast(ones(64), 0)
        dist.all_reduce(ones())
    else:
        dist.all_reduce(ones())
        dist.broadcast(ones(64), 0)


def size(rank: int) -> None:
    """Rank 2 reduces fewer elements than the others, for which gloo ends its process."""
    dist.all_reduce(ones(1000 if rank == 2 else 1024))
    dist.all_reduce(ones())


def dtype(rank: int) -> None:
    """Rank 2 reduces integers: as many bytes, which gloo does not notice. Rank 3 then leaves."""
    dist.all_reduce(ones().int() if rank == 2 else ones())
    if rank != 3:
        dist.all_reduce(ones())


def p2p(rank: int) -> None:
    """Rank 1 expects a message from rank 2, which sends none."""
    if rank == 0:
        dist.send(ones(), 1)
    elif rank == 1:
        dist.recv(ones(), 0)
        dist.recv(ones(), 2)


def ring(rank: int) -> None:
    """Every rank exchanges a batch with its neighbours, but rank 2."""
    world = dist.get_world_size()
    if rank == 2:
        return
    batch = [
        dist.P2POp(dist.isend, ones(), (rank + 1) % world),
        dist.P2POp(dist.irecv, ones(), (rank - 1) % world),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()


def subgroups(rank: int) -> None:
    """Rows and columns of a 2 x 2 mesh; rank 3 leaves after one all_reduce in each."""
    pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    row, column = pairs[rank // 2], pairs[2 + rank % 2]
    for _ in range(1 if rank == 3 else 2):
        dist.all_reduce(ones(), group=row)
        dist.all_reduce(ones(16), group=column)


def ended(rank: int) -> None:
    """Nothing hangs."""
    dist.all_gather([ones(8) for _ in range(dist.get_world_size())], ones(8))


JOBS: dict[Callable[[int], None], int] = {
    missing: 3,
    order: 3,
    size: 4,
    dtype: 4,
    p2p: 3,
    ring: 4,
    subgroups: 4,
    ended: 2,
}


def _rank(rank: int, job: Callable[[int], None], world: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4 * _PATIENCE))
    for _ in range(3):
        dist.all_reduce(ones())
    threading.Thread(target=job, args=(rank,), daemon=True).start()
    time.sleep(_PATIENCE)
    dump = torch._C._distributed_c10d._dump_fr_trace(includeStackTraces=False)
    (folder / f"comm_lib_trace_rank_{rank}").write_bytes(dump)
    time.sleep(1)
    os._exit(0)  # the thread that hangs cannot be joined


def main() -> None:
    os.environ["TORCH_FR_BUFFER_SIZE"] = "1000"
    for job, world in JOBS.items():
        folder = FOLDER / f"gloo_{job.__name__}"
        folder.mkdir(exist_ok=True)
        context = mp.get_context("spawn")
        ranks = [context.Process(target=_rank, args=(r, job, world, folder)) for r in range(world)]
        for process in ranks:
            process.start()
        for process in ranks:  # one may end by a signal
            process.join()


if __name__ == "__main__":
    sys.exit(main())
