"""What logging operations costs: a CPU job of 4 gloo ranks, with and without, step by step.

    python bench/operation_log.py [RANKS] [STEPS]

Steps with and without the log alternate in blocks within each process, so that both see the same
machine, and CPU times of a step are compared (wall time on a shared machine is noise). The CPU time
within the log's own functions is measured as well, hooks, marks, formatting and writing: that is
sharper by far, and an upper bound, since it holds the measuring.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BLOCK = 10


def main() -> None:
    import torch.multiprocessing as mp

    ranks, steps = (int(a) for a in [*sys.argv[1:3], "4", "400"][:2])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, (ranks, steps, folder), nprocs=ranks)
        results = [json.loads(p.read_text()) for p in sorted(Path(folder).glob("result*.json"))]
        rows = sum(len(p.read_text().splitlines()) for p in Path(folder, "rows").glob("*.jsonl"))
    plain, logged = (statistics.fmean(r[k] for r in results) for k in ("plain", "logged"))
    row_us = statistics.fmean(r["row_us"] for r in results)
    each = rows / (ranks * steps / 2)
    print(f"{ranks} ranks, {steps // 2} steps each way, {each:.0f} rows a step and rank")
    print(f"CPU time of a step: {plain:.3f} ms without, {logged:.3f} ms with the log")
    print(f"difference {100 * (logged / plain - 1):+.2f} % (± {_spread(results):.2f} %)")
    within = statistics.fmean(r["within"] for r in results)
    print(f"within the log: {within:.3f} ms of a step, {100 * within / plain:.3f} %")
    print(
        f"a row by hand costs {row_us:.2f} us, {100 * each * row_us / 1e3 / plain:.4f} % of a step"
    )


def _spread(results: list[dict[str, Any]]) -> float:
    """Standard error of the difference over the blocks, in % of a step."""
    off = [100 * d / r["plain"] for r in results for d in r["differences"]]
    return statistics.stdev(off) / len(off) ** 0.5


class _Within:
    """CPU time that a thread spends in functions, in ns; those within others count once."""

    def __init__(self) -> None:
        self.ns, self._depth = 0, 0

    def measured(self, holder: Any, name: str) -> None:
        function = getattr(holder, name)

        def measuring(*args: Any, **options: Any) -> Any:
            self._depth += 1
            began = time.thread_time_ns()
            try:
                return function(*args, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.ns += time.thread_time_ns() - began

        setattr(holder, name, measuring)


def _measured() -> _Within:
    from htk.recording import hooks
    from htk.recording.operations import OperationLog

    within = _Within()
    for name in ("step", "add"):
        within.measured(OperationLog, name)
    passes = ("forward_begins", "forward_ends", "_backward_begins")
    for name in (*passes, "optimizer_begins", "optimizer_ends"):
        within.measured(hooks._Passes, name)
    return within


def _rank(rank: int, ranks: int, steps: int, folder: str) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import htk

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    torch.manual_seed(0)

    def job() -> tuple[Any, Any]:
        layers = [
            torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(4)
        ]
        model = DistributedDataParallel(torch.nn.Sequential(*layers))
        return model, torch.optim.AdamW(model.parameters())

    plain, watched = job(), job()
    batch = torch.randn(4, 64, 256)
    with htk.capture(Path(folder, "rows"), operations=True) as log:
        within = _measured()
        log.watch(*watched)
        _run(*plain, batch, BLOCK), _run(*watched, batch, BLOCK, log)
        log._pending.clear()
        within.ns = 0
        times: dict[str, list[float]] = {"plain": [], "logged": []}
        for _ in range(steps // (2 * BLOCK)):
            times["plain"].append(_run(*plain, batch, BLOCK))
            times["logged"].append(_run(*watched, batch, BLOCK, log))
    result = {name: statistics.fmean(values) for name, values in times.items()}
    result["within"] = within.ns / 1e6 / (steps // 2)
    differences = [b - a for a, b in zip(*times.values(), strict=True)]
    Path(folder, f"result{rank}.json").write_text(
        json.dumps(result | {"differences": differences, "row_us": _row_us(htk, folder, rank)})
    )
    dist.destroy_process_group()


def _run(model: Any, optimizer: Any, batch: Any, steps: int, log: Any = None) -> float:
    """Mean CPU time of a step of this process, in ms."""
    began = time.process_time()
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if log is not None:
            log.step()
    return 1e3 * (time.process_time() - began) / steps


def _row_us(htk: Any, folder: str, rank: int, rows: int = 20_000) -> float:
    with htk.capture(Path(folder, f"alone{rank}"), operations=True) as log:
        began = time.process_time()
        for k in range(rows):
            with log.operation("forward_compute", micro_batch=k % 8):
                pass
        log.flush()
        return 1e6 * (time.process_time() - began) / rows


if __name__ == "__main__":
    main()
