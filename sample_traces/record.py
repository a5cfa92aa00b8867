"""Records real PyTorch programs: how the sets under `recorded/` were made.

    python sample_traces/record.py --cpu            a minute or two, on any machine
    python sample_traces/record.py --gpu            where there is a CUDA GPU
    python sample_traces/record.py --cpu --only ddp

Needs the extra `torch`. On a CPU: a transformer's training step with everything the profiler can
record, DDP and FSDP2 on two processes, and a compiled step. On a GPU: the transformer at six
micro-batches with the step time measured without profiler beside each, with and without a fused
norm, eager and as a CUDA graph.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function, schedule

STEPS = 2
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
TIMED_STEPS = 20

Train = Callable[[], None]


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    fused_norm: bool = True


SMALL = Shape(layers=2, hidden=128, heads=4, sequence=64, vocabulary=1000)
LARGE = Shape(layers=12, hidden=2048, heads=16, sequence=1024, vocabulary=32000)


class Norm(nn.Module):
    """RMS norm: one operator, or the six that eager code makes of it."""

    def __init__(self, size: int, fused: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return functional.rms_norm(x, self.weight.shape, self.weight, 1e-6)
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * scaled.to(x.dtype)


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        size = shape.hidden
        self.heads = shape.heads
        self.norms = nn.ModuleList(Norm(size, shape.fused_norm) for _ in range(2))
        self.attend = nn.Linear(size, 3 * size, bias=False)
        self.project = nn.Linear(size, size, bias=False)
        self.gate = nn.Linear(size, 4 * size, bias=False)
        self.up = nn.Linear(size, 4 * size, bias=False)
        self.down = nn.Linear(4 * size, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        parts = self.attend(self.norms[0](x)).chunk(3, -1)
        query, key, value = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, size))
        inner = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.fused_norm)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def training(
    model: nn.Module, shape: Shape, batch: int, device: str, capturable: bool = False
) -> Train:
    """A step on the same random tokens each time."""
    tokens = torch.randint(shape.vocabulary, (batch, shape.sequence + 1), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=capturable)

    def step() -> None:
        with record_function("forward"):
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not capturable)

    return step


def record(step: Train, file: Path, steps: int = STEPS, **options: Any) -> None:
    """Profile a few steps after a warm-up and write one trace."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kinds = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(ProfilerActivity.CUDA)
    plan = schedule(wait=1, warmup=2, active=steps, repeat=1)
    written = {"on_trace_ready": lambda p: p.export_chrome_trace(str(file))}
    with profile(activities=kinds, schedule=plan, **written, **options) as profiler:
        for _ in range(3 + steps):
            step()
            profiler.step()


# On a CPU


def transformer(folder: Path) -> None:
    """One process, with everything that the profiler can be asked for."""
    step = training(Decoder(SMALL), SMALL, 4, "cpu")
    everything = dict(record_shapes=True, with_stack=True, profile_memory=True, with_flops=True)
    record(step, folder / "rank0.pt.trace.json.gz", **everything)


def compiled(folder: Path) -> None:
    """The step as torch.compile makes it."""
    model = torch.compile(Decoder(SMALL))
    step = training(model, SMALL, 4, "cpu")
    for _ in range(3):
        step()
    record(step, folder / "rank0.pt.trace.json.gz", record_shapes=True)


def ddp(folder: Path) -> None:
    """Data parallel on two processes."""
    _spawn(_ddp_rank, folder)


def fsdp2(folder: Path) -> None:
    """Fully sharded on two processes."""
    _spawn(_fsdp2_rank, folder)


def _ddp_rank(rank: int, folder: Path, meeting: str) -> None:
    _join(rank, meeting)
    model = nn.parallel.DistributedDataParallel(Decoder(SMALL), bucket_cap_mb=1)
    step = training(model, SMALL, 4, "cpu")
    record(step, folder / f"rank{rank}.pt.trace.json.gz", record_shapes=True)
    dist.destroy_process_group()


def _fsdp2_rank(rank: int, folder: Path, meeting: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    _join(rank, meeting)
    mesh = init_device_mesh("cpu", (2,))
    model = Decoder(SMALL)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    step = training(model, SMALL, 4, "cpu")
    record(step, folder / f"rank{rank}.pt.trace.json.gz", record_shapes=True)
    dist.destroy_process_group()


def _join(rank: int, meeting: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)


def _spawn(target: Callable[[int, Path, str], None], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        processes.spawn(target, (folder, str(Path(scratch) / "meeting")), nprocs=2)


# On a GPU


def micro_batches(folder: Path) -> None:
    """The same transformer at six micro-batches."""
    for batch in MICRO_BATCHES:
        target = folder / f"micro_batch_{batch}"
        try:
            _on_gpu(LARGE, batch, target)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            _note(target, LARGE, batch, out_of_memory=True)


def eager_norm(folder: Path) -> None:
    """Norms of six operators; its counterpart is micro_batches/micro_batch_4."""
    _on_gpu(Shape(**{**asdict(LARGE), "fused_norm": False}), 4, folder)


def cuda_graph(folder: Path) -> None:
    """The whole step as one CUDA graph; its counterpart is micro_batches/micro_batch_1."""
    step = training(Decoder(LARGE).cuda(), LARGE, 1, "cuda", capturable=True)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # capture wants a warm-up on another stream
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    _record_on_gpu(graph.replay, LARGE, 1, folder)


def _on_gpu(shape: Shape, batch: int, folder: Path) -> None:
    step = training(Decoder(shape).cuda(), shape, batch, "cuda")
    _record_on_gpu(step, shape, batch, folder)
    torch.cuda.empty_cache()


def _record_on_gpu(step: Train, shape: Shape, batch: int, folder: Path) -> None:
    for _ in range(5):
        step()
    seconds = _seconds_of_steps(step)
    record(step, folder / "rank0.pt.trace.json.gz", 3, record_shapes=True)
    milliseconds = [round(1e3 * s, 4) for s in seconds]
    _note(
        folder,
        shape,
        batch,
        measured_step_ms=statistics.median(milliseconds),
        measured_step_ms_all=milliseconds,
    )


def _note(folder: Path, shape: Shape, batch: int, **more: Any) -> None:
    """What was recorded, and on what."""
    about = {
        "gpu": torch.cuda.get_device_name(),
        "driver": _driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "shape": asdict(shape),
        "micro_batch": batch,
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "measured.json").write_text(json.dumps(about, indent=1) + "\n")


def _driver() -> str:
    """Its version; only the driver's own tool tells."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return printed.split("\n")[0].strip()


def _seconds_of_steps(step: Train) -> list[float]:
    """Without profiler, the device idle before and after each."""
    seconds = []
    for _ in range(TIMED_STEPS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds


ON_CPU = (transformer, ddp, fsdp2, compiled)
ON_GPU = (micro_batches, eager_norm, cuda_graph)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("--cpu", action="store_true", help="record what needs no GPU")
    parser.add_argument("--gpu", action="store_true", help="record what needs a CUDA GPU")
    parser.add_argument("--only", help="one set, by name")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "recorded")
    arguments = parser.parse_args()
    if arguments.gpu and not torch.cuda.is_available():
        parser.error("no CUDA GPU here; --cpu records what needs none")
    sets = [*(ON_CPU if arguments.cpu else ()), *(ON_GPU if arguments.gpu else ())]
    sets = [s for s in sets if arguments.only in (None, s.__name__)]
    if not sets:
        parser.error("nothing to record: name --cpu or --gpu, and an existing set")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for record_set in sets:
        record_set(arguments.output / record_set.__name__)


class _Raw(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the docstring."""


if __name__ == "__main__":
    main()
