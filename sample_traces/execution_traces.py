"""Records PyTorch execution traces beside torch.profiler's traces of the same steps.

    torchrun --nproc_per_node 2 sample_traces/execution_traces.py FOLDER

A few operators, an optimizer's step and collectives on two gloo processes; the profiler's file has
the shapes too, so that what an execution trace says of them can be compared.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    everyone = dist.new_group([0, 1])
    model = torch.nn.Linear(24, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    observer = ExecutionTraceObserver().register_callback(str(folder / f"rank{rank}_et.json"))
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer
    ) as profiler:
        for _ in range(2):
            step(model, optimizer, everyone)
            profiler.step()
    profiler.export_chrome_trace(str(folder / f"rank{rank}.pt.trace.json"))
    dist.destroy_process_group()


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, group: object) -> None:
    with record_function("## step ##"):
        batch = torch.cat([torch.randn(3, 24), torch.randn(5, 24)])
        loss = model(batch).reshape(4, 16).transpose(0, 1).softmax(-1).sum()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
