"""Measure on one CUDA GPU what htk predicts: kernels, training steps, iterations of a server.

    python bench/gpu/record.py -o FOLDER [--seconds 380] [--only kernels steps decode compiled]

Needs PyTorch and a GPU. Three kinds of truth are written:

- `kernels.csv`: kernels alone, timed by the profiler, at sizes that others measured with the launch
  in them; `event_ns` is the time of one call among many, by events, as those measured.
- `steps/NAME/`: the trace of three training steps, and `measured.json` with the time of a step
  without the profiler and the memory it took. Each job differs in a few fields from the one it
  is compared with.
- `decode/NAME/`: iterations of a small decoder as a server replays them from CUDA graphs, named as
  vLLM names them, and `measured.json` likewise.

A case that fails is noted in `failed.json` and costs no other.
"""

import argparse
import contextlib
import csv
import gc
import gzip
import json
import math
import pickle
import random as randoms
import re
import shutil
import statistics
import subprocess
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.checkpoint import checkpoint

Step = Callable[[], None]
FAILED: dict[str, str] = {}
BACKENDS = {
    "efficient": [SDPBackend.EFFICIENT_ATTENTION],
    "flash": [SDPBackend.FLASH_ATTENTION],
    "cudnn": [SDPBackend.CUDNN_ATTENTION],
    "math": [SDPBackend.MATH],
}


@contextlib.contextmanager
def case(name: str) -> Iterator[None]:
    """Note a failure of one case and go on."""
    begin = time.perf_counter()
    try:
        yield
    except Exception:  # whatever a library raises: the other cases are still wanted
        FAILED[name] = traceback.format_exc()[-1500:]
        print(f"FAILED {name}: {FAILED[name].splitlines()[-1]}", flush=True)
    gc.collect()
    torch.cuda.empty_cache()
    print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)


# Kernels alone


@dataclass(frozen=True)
class Kernel:
    """One size of one operation; sizes that an operation lacks are 0."""

    op: str
    precision: str
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 0
    seq: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    elements: int = 0
    layout: str = ""

    @property
    def label(self) -> str:
        return "|".join(str(value) for value in asdict(self).values())


ROWS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
WEIGHTS = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (1024, 8192))
CALLS = 6


def kernels_to_measure() -> list[Kernel]:
    """Return the sizes, in the order in which they are measured."""
    products = [
        Kernel("matmul", precision, m=m, n=n, k=k)
        for precision in ("bf16", "fp8")
        for n, k in WEIGHTS
        for m in ROWS
        if precision == "bf16" or m >= 16
    ]
    backward = [
        Kernel("matmul", "bf16", m=m, n=n, k=k, layout=layout)
        for n, k in WEIGHTS[:4]
        for m in (1024, 4096, 8192)
        for layout in ("input_gradient", "weight_gradient")
    ]
    attention = [
        Kernel(
            op, "bf16", batch=batch, seq=seq, heads=32, kv_heads=kv, head_dim=dim, layout=backend
        )
        for op in ("attention_prefill", "attention_backward")
        for backend in ("flash", "cudnn")
        for dim in (64, 128)
        for kv in (32, 8)
        for batch, seq in (
            (1, 512),
            (1, 2048),
            (1, 8192),
            (4, 1024),
            (4, 4096),
            (16, 512),
            (8, 2048),
        )
        if op == "attention_prefill" or kv == 32
    ]
    decode = [
        Kernel("attention_decode", "bf16", batch=b, seq=s, heads=32, kv_heads=kv, head_dim=128)
        for kv in (32, 8)
        for b in (1, 8, 32, 128)
        for s in (512, 2048, 8192)
        if b * s * kv <= 128 * 2048 * 32
    ]
    moved = [
        Kernel(op, "bf16", elements=2**power)
        for op in ("copy", "add", "silu_mul", "rms_norm", "softmax", "cast_fp8", "cross_entropy")
        for power in (16, 19, 22, 25, 28)
    ]
    return [*products, *backward, *attention, *decode, *moved, *random_kernels(1000)]


def random_kernels(count: int) -> list[Kernel]:
    """Return products, groups of them and attention at sizes between those that others measured."""
    draw = randoms.Random(20)

    def size(least: int, most: int, multiple: int = 1) -> int:
        drawn = math.exp(draw.uniform(math.log(least), math.log(most)))
        return max(multiple, round(drawn / multiple) * multiple)

    kernels = []
    for number in range(count):
        kind = number % 10
        if kind < 6:
            precision = ("bf16", "bf16", "bf16", "fp8", "fp16", "tf32")[kind]
            rows = size(16, 16384, 16) if kind == 3 else size(1, 16384)
            layout = ("", "", "input_gradient", "", "", "")[kind]
            columns = size(256, 16384, 64)
            kernels.append(
                Kernel(
                    "matmul", precision, m=rows, n=columns, k=size(256, 16384, 64), layout=layout
                )
            )
        elif kind == 6:
            kernels.append(
                Kernel(
                    "experts",
                    "bf16",
                    m=size(256, 32768, 64),
                    n=size(512, 8192, 128),
                    k=size(512, 8192, 128),
                    heads=draw.choice((8, 16, 64, 128)),
                    layout=draw.choice(("balanced", "power_law")),
                )
            )
        else:
            op = ("attention_prefill", "attention_backward", "attention_decode")[kind - 7]
            heads = draw.choice((8, 16, 32, 64))
            batch, seq = size(1, 64), size(128, 16384, 64)
            while batch * seq * heads > (2**22 if op == "attention_decode" else 2**20):
                batch, seq = size(1, 64), size(128, 16384, 64)
            shared = draw.choice((1, 1, 4, 8)) if op != "attention_backward" else 1
            kernels.append(
                Kernel(
                    op,
                    "bf16",
                    batch=batch,
                    seq=seq,
                    heads=heads,
                    kv_heads=heads // shared,
                    head_dim=draw.choice((64, 128)),
                    layout=draw.choice(("flash", "cudnn")) if kind < 9 else "",
                )
            )
    return kernels


def operation(kernel: Kernel) -> Step:
    """Return the call of one kernel, on operands that take turns so that no cache holds them."""
    if kernel.op == "matmul":
        return product(kernel)
    if kernel.op == "experts":
        return grouped_product(kernel)
    if kernel.op.startswith("attention"):
        return attention_call(kernel)
    return pointwise(kernel)


def random_tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).to(dtype)


def product(kernel: Kernel) -> Step:
    m, n, k = kernel.m, kernel.n, kernel.k
    copies = max(2, min(12, int(3e8 // (2 * (m * k + n * k)))))
    turn = iter(range(10**9))
    if kernel.precision == "fp8":
        eight = torch.float8_e4m3fn
        left = [random_tensor(m, k, dtype=eight) for _ in range(copies)]
        right = [random_tensor(n, k, dtype=eight).t() for _ in range(copies)]
        scale = torch.ones((), device="cuda")

        def scaled() -> None:
            i = next(turn) % copies
            torch._scaled_mm(left[i], right[i], scale, scale, out_dtype=torch.bfloat16)

        return scaled
    shapes = {
        "": ((m, k), (n, k), False, True),  # x @ weight.t()
        "input_gradient": ((m, n), (n, k), False, False),  # grad @ weight
        "weight_gradient": ((m, n), (m, k), True, False),  # grad.t() @ x
    }
    first, second, turn_first, turn_second = shapes[kernel.layout]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}[kernel.precision]
    torch.backends.cuda.matmul.allow_tf32 = kernel.precision == "tf32"
    left = [random_tensor(*first, dtype=dtype) for _ in range(copies)]
    right = [random_tensor(*second, dtype=dtype) for _ in range(copies)]

    def plain() -> None:
        i = next(turn) % copies
        a = left[i].t() if turn_first else left[i]
        b = right[i].t() if turn_second else right[i]
        torch.mm(a, b)

    return plain


def grouped_product(kernel: Kernel) -> Step:
    """Return the product of each expert's rows with its weights; `heads` tells how many experts."""
    experts = kernel.heads
    shares = [1.0] * experts
    if kernel.layout == "power_law":
        shares = [(i + 1) ** -1.2 for i in range(experts)]
    ends = [round(kernel.m * sum(shares[: i + 1]) / sum(shares)) for i in range(experts)]
    offsets = torch.tensor(ends, dtype=torch.int32, device="cuda")
    rows = random_tensor(kernel.m, kernel.k)
    weights = random_tensor(experts, kernel.n, kernel.k).transpose(1, 2)
    return lambda: (torch._grouped_mm(rows, weights, offs=offsets), None)[1]


def attention_call(kernel: Kernel) -> Step:
    b, s, h, g, d = kernel.batch, kernel.seq, kernel.heads, kernel.kv_heads, kernel.head_dim
    length = 1 if kernel.op == "attention_decode" else s
    backward = kernel.op == "attention_backward"
    q = random_tensor(b, length, h, d).transpose(1, 2).requires_grad_(backward)
    k = random_tensor(b, s, g, d).transpose(1, 2).requires_grad_(backward)
    v = random_tensor(b, s, g, d).transpose(1, 2).requires_grad_(backward)
    backends = BACKENDS[kernel.layout or "flash"]

    def forward() -> Tensor:
        with sdpa_kernel(backends):
            return functional.scaled_dot_product_attention(
                q, k, v, is_causal=length > 1, enable_gqa=h != g
            )

    if not backward:
        return lambda: (forward(), None)[1]
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: (torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), None)[1]


def pointwise(kernel: Kernel) -> Step:
    rows = max(1, kernel.elements // 4096)
    x = random_tensor(rows, 4096) if kernel.elements >= 4096 else random_tensor(1, kernel.elements)
    y = torch.randn_like(x)
    weight = random_tensor(x.shape[-1])
    calls: dict[str, Step] = {
        "copy": lambda: (x.clone(), None)[1],
        "add": lambda: (x + y, None)[1],
        "silu_mul": lambda: (functional.silu(x) * y, None)[1],
        "rms_norm": lambda: (functional.rms_norm(x, weight.shape, weight, 1e-6), None)[1],
        "softmax": lambda: (torch.softmax(x, -1), None)[1],
        "cast_fp8": lambda: (x.to(torch.float8_e4m3fn), None)[1],
    }
    if kernel.op == "cross_entropy":
        targets = torch.randint(x.shape[-1], (x.shape[0],), device="cuda")
        return lambda: (functional.cross_entropy(x.float(), targets), None)[1]
    return calls[kernel.op]


def event_ns(call: Step) -> float:
    """Return the time of one call among many, as benchmarks of kernels measure it, in ns."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e6 / CALLS


def measure_kernels(folder: Path, until: float) -> None:
    """Write kernels.csv and the trace that its times are from."""
    rows: dict[str, dict[str, Any]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "kernels.pt.trace.json"
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for kernel in kernels_to_measure():
            if time.perf_counter() > until:
                print("kernels: out of time", flush=True)
                break
            try:
                call = operation(kernel)
                for _ in range(3):
                    call()
                torch.cuda.synchronize()
                with record_function("htk|" + kernel.label):
                    for _ in range(CALLS):
                        call()
                    torch.cuda.synchronize()
                rows[kernel.label] = {**asdict(kernel), "event_ns": round(event_ns(call))}
            except Exception as error:
                FAILED[kernel.label] = str(error)[:300]
            del call
            if kernel.elements >= 2**25 or kernel.m >= 8192:
                torch.cuda.empty_cache()
    profiler.export_chrome_trace(str(trace))
    add_kernel_times(trace, rows)
    with (folder / "kernels.csv").open("w", newline="") as out:
        names = [*asdict(Kernel("", "")), "kernel_ns", "least_ns", "event_ns", "count", "names"]
        writer = csv.DictWriter(out, names)
        writer.writeheader()
        writer.writerows(rows.values())
    with trace.open("rb") as plain, gzip.open(f"{trace}.gz", "wb", 6) as packed:
        shutil.copyfileobj(plain, packed)
    trace.unlink()


def add_kernel_times(trace: Path, rows: dict[str, dict[str, Any]]) -> None:
    """Add to each row the median over its calls of the time its kernels take, from the trace."""
    events = json.loads(trace.read_text())["traceEvents"]
    ranges = [
        e
        for e in events
        if str(e.get("name", "")).startswith("htk|") and e.get("cat") == "user_annotation"
    ]
    ranges.sort(key=lambda e: e["ts"])
    launches = {
        e["args"]["correlation"]: e["ts"]
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    work = [e for e in work if e["args"].get("correlation") in launches]
    work.sort(key=lambda e: launches[e["args"]["correlation"]])
    position = 0
    for span in ranges:
        label = span["name"].removeprefix("htk|")
        end = span["ts"] + span["dur"]
        inside = []
        while position < len(work) and launches[work[position]["args"]["correlation"]] < span["ts"]:
            position += 1
        while position < len(work) and launches[work[position]["args"]["correlation"]] <= end:
            inside.append(work[position])
            position += 1
        if label not in rows or len(inside) % CALLS:
            continue
        each = len(inside) // CALLS
        times = [
            1e3 * sum(e["dur"] for e in inside[i * each : (i + 1) * each]) for i in range(CALLS)
        ]
        rows[label] |= {
            "kernel_ns": round(statistics.median(times)),
            "least_ns": round(min(times)),
            "count": each,
            "names": ";".join(e["name"][:120] for e in inside[:each]),
        }


# Training steps


@dataclass(frozen=True)
class Job:
    """A training job of one GPU; what differs between two jobs is what a what-if changes."""

    model: str = "decoder"
    layers: int = 8
    hidden: int = 2048
    heads: int = 16
    seq: int = 1024
    vocabulary: int = 32000
    batch: int = 4
    accumulation: int = 1
    precision: str = "bf16"
    checkpointing: bool = False
    optimizer: str = "foreach"
    attention: str = "flash"
    norm: str = "fused"
    graph: bool = False
    compiled: bool = False
    fault: str = ""


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
        return (self.weight * scaled).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, job: Job) -> None:
        super().__init__()
        size = job.hidden
        self.heads = job.heads
        self.backends = BACKENDS[job.attention]
        self.norms = nn.ModuleList(Norm(size, job.norm == "fused") for _ in range(2))
        self.attend = nn.Linear(size, 3 * size, bias=False)
        self.project = nn.Linear(size, size, bias=False)
        self.gate = nn.Linear(size, 4 * size, bias=False)
        self.up = nn.Linear(size, 4 * size, bias=False)
        self.down = nn.Linear(4 * size, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        parts = self.attend(self.norms[0](x)).chunk(3, -1)
        query, key, value = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        with sdpa_kernel(self.backends):
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, size))
        inner = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.checkpointing = job.checkpointing
        self.embedding = nn.Embedding(job.vocabulary, job.hidden)
        self.layers = nn.ModuleList(Layer(job) for _ in range(job.layers))
        self.norm = Norm(job.hidden, job.norm == "fused")
        self.head = nn.Linear(job.hidden, job.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointing else layer(x)
        return self.head(self.norm(x))


def training(job: Job) -> tuple[Step, nn.Module]:
    """Return a step of the job, and its model."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = job.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = job.precision == "tf32"
    if job.model == "resnet50":
        return vision_training(job)
    model = Decoder(job).cuda()
    if job.compiled:
        for layer in model.layers:
            layer.compile()
    tokens = torch.randint(job.vocabulary, (job.batch, job.seq + 1)).pin_memory()
    fixed = tokens.cuda()
    options: dict[str, Any] = {"foreach": True} if job.optimizer == "foreach" else {"fused": True}
    if job.optimizer == "forloop":
        options = {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=job.graph, **options)

    large = torch.empty(2**28 if job.fault else 0, dtype=torch.uint8)

    def step() -> None:
        if job.fault == "slow_loader":
            time.sleep(0.02)
        elif job.fault == "pageable_copy":
            large.to("cuda")
        elif job.fault == "emptied_cache":
            torch.cuda.empty_cache()
        for _ in range(job.accumulation):
            batch = fixed if job.graph else tokens.to("cuda", non_blocking=True)
            with record_function("forward"):
                with torch.autocast("cuda", torch.bfloat16, enabled=job.precision == "bf16"):
                    logits = model(batch[:, :-1])
                loss = functional.cross_entropy(
                    logits.flatten(0, 1).float(), batch[:, 1:].flatten()
                )
            if job.fault == "read_loss":
                loss.item()
            with record_function("backward"):
                (loss / job.accumulation).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not job.graph)

    return step, model


def vision_training(job: Job) -> tuple[Step, nn.Module]:
    from torchvision.models import resnet50

    model = resnet50().cuda().to(memory_format=torch.channels_last)
    images = torch.randn(job.batch, 3, 224, 224).pin_memory()
    labels = torch.randint(1000, (job.batch,)).pin_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        pictures = images.to("cuda", non_blocking=True, memory_format=torch.channels_last)
        with (
            record_function("forward"),
            torch.autocast("cuda", torch.bfloat16, enabled=job.precision == "bf16"),
        ):
            loss = functional.cross_entropy(model(pictures), labels.to("cuda", non_blocking=True))
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, model


BASE = Job()
SMALL = Job(layers=4, hidden=512, heads=8, seq=256, vocabulary=8000)
WIDE = Job(layers=4, hidden=4096, heads=32, batch=2)
VISION = Job(model="resnet50", layers=0, hidden=0, heads=0, seq=0, vocabulary=0, batch=64)


def jobs_to_measure() -> dict[str, Job]:
    """Return the jobs by name, what matters most first."""
    jobs = {"base": BASE}
    jobs |= {f"base_batch_{b}": replace(BASE, batch=b) for b in (8, 1, 2, 16, 32)}
    jobs |= {f"base_seq_{s}": replace(BASE, seq=s) for s in (2048, 512, 4096, 256)}
    jobs["base_checkpointing"] = replace(BASE, checkpointing=True)
    jobs["base_fused_optimizer"] = replace(BASE, optimizer="fused")
    jobs["base_accumulation_2"] = replace(BASE, accumulation=2)
    jobs["base_accumulation_4"] = replace(BASE, accumulation=4)
    jobs["base_math_attention"] = replace(BASE, attention="math")
    jobs["base_eager_norm"] = replace(BASE, norm="eager")
    for precision in ("tf32", "fp32", "bf16"):  # one attention that takes all three
        job = replace(BASE, precision=precision, attention="efficient")
        jobs[f"precision_{precision}"] = job
    for fault in ("read_loss", "slow_loader", "pageable_copy", "emptied_cache"):
        jobs[f"base_{fault}"] = replace(BASE, fault=fault)
        jobs[f"small_{fault}"] = replace(SMALL, fault=fault)
    jobs["base_graph"] = replace(BASE, graph=True)
    jobs["base_cudnn_attention"] = replace(BASE, attention="cudnn")
    jobs["base_checkpointing_batch_16"] = replace(BASE, checkpointing=True, batch=16)
    jobs["base_batch_8_seq_512"] = replace(BASE, batch=8, seq=512)
    jobs["base_layers_16"] = replace(BASE, layers=16)
    jobs["small"] = SMALL
    jobs |= {f"small_batch_{b}": replace(SMALL, batch=b) for b in (1, 16, 64, 256)}
    jobs["small_graph"] = replace(SMALL, graph=True)
    jobs["small_fused_optimizer"] = replace(SMALL, optimizer="fused")
    jobs["small_forloop_optimizer"] = replace(SMALL, optimizer="forloop")
    jobs["small_eager_norm"] = replace(SMALL, norm="eager")
    jobs["vision"] = VISION
    jobs |= {f"vision_batch_{b}": replace(VISION, batch=b) for b in (128, 256, 32)}
    jobs["vision_tf32"] = replace(VISION, precision="tf32")
    jobs["wide"] = WIDE
    jobs |= {f"wide_batch_{b}": replace(WIDE, batch=b) for b in (1, 4, 8)}
    jobs["wide_checkpointing"] = replace(WIDE, checkpointing=True)
    return jobs


def captured(step: Step) -> Step:
    """Return the replay of a whole step as one CUDA graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # capture wants a warm-up on another stream
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure_steps(folder: Path, until: float, names: str) -> None:
    """Write the trace and the measured time and memory of each training job whose name matches."""
    jobs = {name: job for name, job in jobs_to_measure().items() if re.fullmatch(names, name)}
    for name, job in jobs.items():
        if time.perf_counter() > until:
            print("steps: out of time before", name, flush=True)
            return
        with case(name):
            measure_job(job, folder / name)


def measure_job(job: Job, folder: Path, **options: Any) -> None:
    step, model = training(job)
    if job.graph:
        step = captured(step)
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = measured_times(step)
    memory = {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "allocated_between_steps_bytes": torch.cuda.memory_allocated(),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    write_trace(step, folder / "rank0.pt.trace.json.gz", profile_memory=not job.graph, **options)
    note_case(folder, job=asdict(job), **times, **memory)
    if job in (BASE, replace(BASE, batch=8)):
        write_snapshot(step, folder / "memory_snapshot.pickle")


def measured_times(step: Step, most: int = 20, seconds: float = 1.2) -> dict[str, Any]:
    """Return the time of a step without profiler: steps back to back, and each by itself, in ms."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    count = max(4, min(most, int(seconds / (time.perf_counter() - begin))))
    begin = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    back_to_back = (time.perf_counter() - begin) / count
    alone = []
    for _ in range(max(3, count // 2)):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        alone.append(1e3 * (time.perf_counter() - begin))
    return {
        "step_ms": round(1e3 * back_to_back, 4),
        "steps_timed": count,
        "step_alone_ms": round(statistics.median(alone), 4),
        "step_alone_ms_all": [round(ms, 4) for ms in alone],
    }


def write_trace(step: Step, file: Path, active: int = 3, **options: Any) -> None:
    """Profile a few steps after a warm-up and write one trace."""
    file.parent.mkdir(parents=True, exist_ok=True)
    plan = schedule(wait=1, warmup=2, active=active, repeat=1)
    kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(
        activities=kinds,
        schedule=plan,
        on_trace_ready=lambda p: p.export_chrome_trace(str(file)),
        record_shapes=True,
        **options,
    ) as profiler:
        for _ in range(3 + active):
            step()
            profiler.step()


def write_snapshot(step: Step, file: Path) -> None:
    torch.cuda.memory._record_memory_history(max_entries=200_000, stacks="python")
    step()
    torch.cuda.synchronize()
    file.write_bytes(gzip.compress(pickle.dumps(torch.cuda.memory._snapshot()), 6))
    torch.cuda.memory._record_memory_history(enabled=None)


def note_case(folder: Path, **facts: Any) -> None:
    """Write what was measured, and on what."""
    about = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        **facts,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "measured.json").write_text(json.dumps(about, indent=1) + "\n")


# Iterations of a server


class Server:
    """A decoder of eight layers as a server runs it: a cache of keys and values, no gradients."""

    layers, hidden, heads, kv_heads, head_dim, inner, vocabulary = 8, 4096, 32, 8, 128, 14336, 32000

    def __init__(self, batch: int, context: int, weights: str = "bf16") -> None:
        self.batch, self.context = batch, context
        self.weights = weights
        width = (self.heads + 2 * self.kv_heads) * self.head_dim
        self.attend = [random_tensor(width, self.hidden) * 0.01 for _ in range(self.layers)]
        self.project = [
            random_tensor(self.hidden, self.heads * self.head_dim) * 0.01
            for _ in range(self.layers)
        ]
        self.gate_up = [
            random_tensor(2 * self.inner, self.hidden) * 0.01 for _ in range(self.layers)
        ]
        self.down = [random_tensor(self.hidden, self.inner) * 0.01 for _ in range(self.layers)]
        self.norm = random_tensor(self.hidden)
        self.head = random_tensor(self.vocabulary, self.hidden) * 0.01
        self.embedding = random_tensor(self.vocabulary, self.hidden)
        cache = (batch, self.kv_heads, context, self.head_dim)
        self.keys = [random_tensor(*cache) for _ in range(self.layers)]
        self.values = [random_tensor(*cache) for _ in range(self.layers)]
        self.tokens = torch.randint(self.vocabulary, (batch, 1), device="cuda")
        self.one = torch.ones((), device="cuda")
        if weights == "fp8":
            for matrices in (self.attend, self.project, self.gate_up, self.down):
                matrices[:] = [matrix.to(torch.float8_e4m3fn) for matrix in matrices]

    def multiply(self, x: Tensor, weight: Tensor) -> Tensor:
        if weight.dtype == torch.bfloat16:
            return functional.linear(x, weight)
        rows = x.reshape(-1, x.shape[-1]).to(torch.float8_e4m3fn)
        out = torch._scaled_mm(rows, weight.t(), self.one, self.one, out_dtype=torch.bfloat16)
        return out.view(*x.shape[:-1], -1)

    def iterate(self, tokens: Tensor) -> Tensor:
        """Return the next token of each request: of one token each, or of a prompt."""
        x = self.embedding[tokens]
        batch, length, _ = x.shape
        for i in range(self.layers):
            both = self.multiply(self.rms(x), self.attend[i])
            q, k, v = both.split(
                [self.heads * self.head_dim, *[self.kv_heads * self.head_dim] * 2], -1
            )
            q = q.view(batch, length, self.heads, self.head_dim).transpose(1, 2)
            k = k.view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
            v = v.view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
            if length == 1:
                self.keys[i][:, :, -1:] = k
                self.values[i][:, :, -1:] = v
                k, v = self.keys[i], self.values[i]
            with sdpa_kernel(BACKENDS["flash"]):
                mixed = functional.scaled_dot_product_attention(
                    q, k, v, is_causal=length > 1, enable_gqa=True
                )
            x = x + self.multiply(mixed.transpose(1, 2).reshape(batch, length, -1), self.project[i])
            gate, up = self.multiply(self.rms(x), self.gate_up[i]).chunk(2, -1)
            x = x + self.multiply(functional.silu(gate) * up, self.down[i])
        return functional.linear(self.rms(x[:, -1]), self.head).argmax(-1, keepdim=True)

    def rms(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.norm.shape, self.norm, 1e-6)


def measure_decode(folder: Path, until: float) -> None:
    """Write iterations of decoding at several batches and contexts, and of prefill."""
    sizes = [(b, c) for c in (1024, 4096, 16384) for b in (1, 8, 16, 32, 64, 128, 256)]
    for batch, context in sizes:
        if batch * context > 256 * 4096 or time.perf_counter() > until:
            continue
        with case(f"decode batch {batch} context {context}"), torch.inference_mode():
            measure_decoding(Server(batch, context), folder)
    for batch in (16, 32, 64, 128):
        with case(f"decode fp8 batch {batch}"), torch.inference_mode():
            measure_decoding(Server(batch, 4096, "fp8"), folder)
    for batch, length in ((1, 512), (1, 2048), (1, 8192), (4, 2048), (8, 1024)):
        if time.perf_counter() > until:
            return
        with case(f"prefill batch {batch} length {length}"), torch.inference_mode():
            measure_prefill(batch, length, folder)


def measure_decoding(server: Server, folder: Path) -> None:
    batch, context = server.batch, server.context
    target = folder / f"decode_{server.weights}_batch_{batch}_context_{context}"

    def capture() -> Step:
        return captured(lambda: (server.tokens.copy_(server.iterate(server.tokens)), None)[1])

    if context == 4096 and batch in (16, 64):  # the capture's own trace tells shapes of the graph
        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True
        ) as profiler:
            replay = capture()
        target.mkdir(parents=True, exist_ok=True)
        (target / "capture_traces").mkdir(exist_ok=True)
        profiler.export_chrome_trace(
            str(target / "capture_traces" / f"graph_capture_rank_0_bs_{batch}.pt.trace.json.gz")
        )
    else:
        replay = capture()
    sums = f"sq{batch}sk{batch * context}sqsq{batch}sqsk{batch * context}"
    name = f"execute_context_0(0)_generation_{batch}({sums})"

    def iterate() -> None:
        with record_function(name):
            replay()
            server.tokens.to("cpu", non_blocking=True)
            torch.cuda.current_stream().synchronize()

    for _ in range(3):
        iterate()
    times = measured_times(iterate, seconds=0.4)
    write_server_trace(iterate, target / "rank0.pt.trace.json.gz")
    note_case(target, batch=batch, context=context, layers=8, weights=server.weights, **times)


def measure_prefill(batch: int, length: int, folder: Path) -> None:
    server = Server(1, 16)
    prompt = torch.randint(server.vocabulary, (batch, length), device="cuda")
    queries = batch * length
    pairs = batch * length * length
    sums = f"sq{queries}sk{queries}sqsq{pairs}sqsk{pairs}"
    name = f"execute_context_{batch}({sums})_generation_0(sq0sk0sqsq0sqsk0)"

    def iterate() -> None:
        with record_function(name):
            server.iterate(prompt)
            torch.cuda.current_stream().synchronize()

    for _ in range(3):
        iterate()
    times = measured_times(iterate, seconds=0.4)
    target = folder / f"prefill_batch_{batch}_length_{length}"
    write_server_trace(iterate, target / "rank0.pt.trace.json.gz")
    note_case(target, batch=batch, length=length, layers=8, **times)


def write_server_trace(iterate: Step, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True
    ) as profiler:
        for _ in range(8):
            iterate()
    profiler.export_chrome_trace(str(file))


# Compiled code, with stacks


def measure_compiled(folder: Path, until: float) -> None:
    """Write compiled steps, and eager ones with the stacks and modules of every operator."""
    shorter = replace(BASE, layers=4)
    with case("stacks"):
        measure_job(
            replace(shorter, layers=2), folder / "stacks", with_stack=True, with_modules=True
        )
    for name, job in (
        ("small_compiled", replace(SMALL, compiled=True)),
        ("base_compiled", replace(BASE, compiled=True)),
    ):
        if time.perf_counter() < until:
            with case(name):
                measure_job(job, folder / name)
    if time.perf_counter() < until:
        with case("compiled with stacks"):
            measure_job(
                replace(SMALL, layers=2, compiled=True), folder / "compiled_stacks", with_stack=True
            )


# All of it


PARTS = ("kernels", "steps", "decode", "compiled")
SHARES = {"kernels": 0.3, "steps": 0.72, "decode": 0.87, "compiled": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "--seconds", type=float, default=380, help="stop starting cases after so long"
    )
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--jobs", default=".*", help="expression that names of training jobs match")
    args = parser.parse_args()
    begin = time.perf_counter()
    args.output.mkdir(parents=True, exist_ok=True)
    clocks = watch_clocks(args.output / "clocks.csv")
    for part in args.only:
        until = begin + args.seconds * SHARES[part]
        with case(part):
            folder = args.output / part
            if part == "kernels":
                measure_kernels(folder, until)
            elif part == "steps":
                measure_steps(folder, until, args.jobs)
            elif part == "decode":
                measure_decode(folder, until)
            else:
                measure_compiled(folder, until)
    clocks.terminate()
    (args.output / "failed.json").write_text(json.dumps(FAILED, indent=1) + "\n")
    by_error: dict[str, int] = defaultdict(int)
    for text in FAILED.values():
        by_error[text.splitlines()[-1][:160]] += 1
    for text, count in by_error.items():
        print(count, "x", text)


def watch_clocks(file: Path) -> "subprocess.Popen[bytes]":
    """Start the driver's own tool, which writes the GPU's clock, power and temperature."""
    fields = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv", "-lms", "200"]
    return subprocess.Popen(command, stdout=file.open("wb"))


if __name__ == "__main__":
    main()
