"""Published steps as described jobs: what of each source `htk plan` can say, and what it cannot."""

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from htk.base.errors import UsageError
from htk.physics.decoder import Decoder
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob


@dataclass(frozen=True)
class Measured:
    """A published step: the job that took it, or why it cannot be said."""

    source: str
    label: str
    job: PlannedJob | None
    step_ns: float = 0.0
    reason: str = ""
    system: str = ""  # what kind of GPU


class Unsaid(Exception):
    """What a row does not tell, or a plan cannot be told."""


def load(folder: Path) -> list[Measured]:
    return [
        Measured(*row)
        for name, (file, read) in SOURCES.items()
        for row in _rows(folder / file, name, read)
    ]


Read = Callable[[dict[str, str]], tuple[str, PlannedJob, float]]


def _rows(path: Path, source: str, read: Read) -> Iterator[tuple[Any, ...]]:
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            try:
                label, job, step = read(row)
                yield source, label, job, step, "", job.gpu.name
            except _Skipped:
                continue
            except (Unsaid, UsageError) as error:
                yield source, str(row.get("model", "")), None, 0.0, str(error), ""


class _Skipped(Exception):
    """The row measures no step, or it is another's."""


def _number(text: str | None, name: str) -> float:
    digits = re.match(r"\d+(\.\d+)?", (text or "").strip())
    if digits is None:
        raise Unsaid(f"{name} is not stated")
    return float(digits[0])


def _whole(row: dict[str, str], name: str, default: int | None = None) -> int:
    text = (row.get(name) or "").strip()
    if text in ("", "n/a") and default is not None:
        return default
    if not re.fullmatch(r"\d+(\.0)?", text):
        raise Unsaid(f"{name} is {text or 'not stated'}")
    return int(float(text))


_NVIDIA_MODELS = {"LLAMA3.1_405B": "llama3-405b", "LLAMA3_70B": "llama3-70b"}
_NOT_DECODERS = ("wan", "flux", "vl", "diffusion", "stable")


def _nvidia(row: dict[str, str]) -> tuple[str, PlannedJob, float]:
    """As the tables of NVIDIA's frameworks state a run. They train with a distributed optimizer, or
    with FSDP where a column says so, and their recipes overlap tensor parallelism."""
    name = row["model"].split(" (")[0].strip()
    model = decoder(_NVIDIA_MODELS.get(name, name))
    system = row["system"].removeprefix("DGX-").lower()
    precision = row["precision"].split("(")[0].strip().lower()  # another's figures in brackets
    if not precision:
        raise Unsaid("precision is not stated")
    for column in ("tp", "pp", "cp", "vp"):
        if "(" in (row[column] or ""):
            raise Unsaid("two layouts in one row")
    ranks, own = _whole(row, "n_gpus"), gpu(system)
    node = min(4 if system.startswith("gb") else 8, ranks)
    lora = 16 if row["task"].lower() == "lora" else None
    split = [_whole(row, column, 1) for column in ("tp", "pp", "cp", "vp", "ep")]
    micro, batch = _whole(row, "mbs"), _whole(row, "gbs")
    replicas = ranks // (split[0] * split[1] * split[2])
    if not replicas or batch % (micro * replicas):
        raise Unsaid(f"a batch of {batch} does not divide among {replicas} replicas")
    sharded = (row["fsdp"] or "0").strip() not in ("", "0")
    job = PlannedJob(
        model, own, ranks // node, node, micro, _whole(row, "seq_len"),
        accumulation=batch // (micro * replicas),
        strategy="full_shard" if sharded else "zero1",
        tensor_parallel=split[0], pipeline_parallel=split[1], context_parallel=split[2],
        virtual_stages=split[3], expert_parallel=split[4], precision=precision,
        schedule="interleaved" if split[3] > 1 else "1f1b", lora_rank=lora,
        capacity=1.0 if "tokendrop" in row["model"] else None,
        fused_loss=True,  # as Megatron-Bridge's recipes have it
    )  # fmt: skip
    rate = _number(row["tokens_per_s_per_gpu"], "tokens per second")
    step = 1e9 * batch * job.seq / (rate * ranks)
    label = f"{row['system']} {row['model']} {precision} {row['container']} {row['task']}"
    return label, job, step


_MPT = {
    "125m": (768, 12, 12), "760m": (1536, 24, 12), "1b": (2048, 24, 16), "3b": (2560, 32, 20),
    "7b": (4096, 32, 32), "30b": (7168, 48, 56), "70b": (8192, 64, 64),
}  # fmt: skip
_FOUNDRY_GPUS = {"a100_40gb": "a100-40gb", "a100_80gb": "a100-80gb", "h100_80gb": "h100"}


def _gpt(hidden: int, layers: int, heads: int, vocab: int = 51200) -> Decoder:
    return Decoder("gpt", layers, hidden, heads, heads, 4 * hidden, vocab, False, True, 2048)


def _foundry(row: dict[str, str]) -> tuple[str, PlannedJob, float]:
    if row["model"] not in _MPT:
        raise Unsaid(f"the sizes of {row['model']} are not stated")
    ranks, micro, seq = (_whole(row, n) for n in ("n_gpus", "micro_batch", "seq_len"))
    job = PlannedJob(
        _gpt(*_MPT[row["model"]], vocab=50368), gpu(_FOUNDRY_GPUS[row["gpu"]]),
        max(1, ranks // 8), min(8, ranks), micro, seq,
        "full" if row["act_ckpt"] == "True" else "none",
        accumulation=_whole(row, "grad_accum", 1), strategy=row["sharding"].lower(),
        precision="fp8" if row["precision"] == "amp_fp8" else "bf16", kernels="eager",
        fused_loss=True,  # MPT's default
    )  # fmt: skip
    rate = float(row["tokens_per_s_per_gpu"])
    step = 1e9 * micro * seq * job.accumulation / rate
    return f"{row['model']} {row['gpu']} {micro}×{seq} on {ranks}", job, step


def _alephalpha(row: dict[str, str]) -> tuple[str, PlannedJob, float]:
    if not row["step_time_s"]:
        raise _Skipped
    tensor, pipeline, micro = (_whole(row, n) for n in ("tp", "pp", "micro_batch"))
    ranks, batch = _whole(row, "n_gpus"), _whole(row, "global_batch")
    count = batch // (ranks // (tensor * pipeline) * micro)
    if count < 1:
        raise Unsaid("fewer sequences than replicas")
    flash = row["attn_kernel"].startswith("flash")
    job = PlannedJob(
        decoder("llama2-13b", vocab=128000), gpu("a100-80gb"), max(ranks // 8, 1), min(ranks, 8),
        micro, _whole(row, "seq_len"), "full" if row["act_ckpt"] == "every_layer" else "none",
        accumulation=count, strategy="zero1", tensor_parallel=tensor, pipeline_parallel=pipeline,
        sequence_parallel=row["seq_parallel"] in ("1", "1.0", "True"), overlap_tensor=False,
        kernels="fused" if row["rms_kernel"] == "True" else "eager",
        attention="flash" if flash else "materialised",
    )  # fmt: skip
    label = f"13B {row['attn_kernel']} tp {tensor} pp {pipeline} {micro}"
    return label, job, 1e9 * float(row["step_time_s"])


def _vtrain(row: dict[str, str]) -> tuple[str, PlannedJob, float]:
    tensor, pipeline, micro = (_whole(row, n) for n in ("tp", "pp", "micro_batch"))
    ranks, data = _whole(row, "n_gpus"), _whole(row, "dp")
    count = _whole(row, "global_batch") // (data * micro)
    if count < 1:
        raise Unsaid("fewer sequences than replicas")
    job = PlannedJob(
        _gpt(_whole(row, "hidden"), _whole(row, "layers"), _whole(row, "heads")),
        gpu("a100-80gb"), ranks // 8, 8, micro, _whole(row, "seq_len"), "full",
        accumulation=count, strategy="ddp", tensor_parallel=tensor, pipeline_parallel=pipeline,
        sequence_parallel=False, kernels="eager", attention="materialised",
    )  # fmt: skip
    return f"{row['params_b']}B tp {tensor} pp {pipeline} {micro}", job, 1e6 * float(row["iter_ms"])


_LLAMAS = {"Llama3.1-8B": "llama3-8b", "Llama3-8B": "llama3-8b", "Llama3.1-70B": "llama3-70b",
           "Llama3-70B": "llama3-70b", "Llama3.1-405B": "llama3-405b",
           "Llama2-13B": "llama2-13b", "Llama2-70B": "llama2-70b"}  # fmt: skip


def _torchtitan(row: dict[str, str]) -> tuple[str, PlannedJob, float]:
    rate = row["tps_per_gpu"]
    if not rate or rate == "OOM":
        raise _Skipped
    ranks, pipeline = _whole(row, "n_gpus"), _whole(row, "pp")
    device = next(
        name
        for start, name in (("H200", "h200"), ("A100", "a100-80gb"), ("H100", "h100"))
        if row["gpu"].startswith(start)
    )
    technique = row["technique"]
    precision = row["precision"].split("-")[0].replace("float8", "fp8")
    chunks = 2 if "Interleaved" in technique else 1
    local = _whole(row, "local_batch")
    seq, ac = _whole(row, "seq_len"), row["ac"]
    tensor, context = _whole(row, "tp"), _whole(row, "cp")
    micro = max(local // (4 * pipeline), 1) if pipeline > 1 else local
    job = PlannedJob(
        decoder(_LLAMAS[row["model"]]), gpu(device), max(ranks // 8, 1), min(ranks, 8), micro, seq,
        "none" if ac == "none" else "full" if ac == "full" else "selective",
        accumulation=max(local // micro, 1), strategy="full_shard",
        tensor_parallel=tensor, context_parallel=context, pipeline_parallel=pipeline,
        virtual_stages=chunks, precision=precision,
        overlap_tensor="sync" in technique,
        kernels="compiled" if row["compile"] in ("1", "") else "eager",
    )  # fmt: skip
    tokens = micro * job.accumulation * job.replicas * seq
    label = f"{row['model']} {row['gpu']} {technique} {row['precision']} {seq}"
    return label, job, 1e9 * tokens / (float(rate) * ranks)


_KORTHIKANTI = {  # hidden, layers, heads, micro-batch, chunks
    "22B": (6144, 48, 64, 4, 1), "175B": (12288, 96, 96, 1, 3),
    "530B": (20480, 105, 128, 1, 3), "1T": (25600, 128, 160, 1, 1),
}  # fmt: skip


def _megatron(row: dict[str, str]) -> tuple[str, PlannedJob, float]:
    if row["table"] == "SC21-T1":
        return _sc21(row)
    if row["table"] != "Korthikanti-T5":
        raise _Skipped if "Fig1" in row["table"] else Unsaid("sizes are not stated")
    hidden, layers, heads, micro, chunks = _KORTHIKANTI[row["params_b"]]
    tensor, pipeline = _whole(row, "tp"), _whole(row, "pp")
    ranks = _whole(row, "n_gpus")
    full = row["method"] == "full recompute"
    job = PlannedJob(
        _gpt(hidden, layers, heads), gpu("a100-80gb"), ranks // 8, 8, micro, 2048,
        "full" if full else "none", accumulation=_whole(row, "global_batch") // micro,
        strategy="ddp", tensor_parallel=tensor, pipeline_parallel=pipeline,
        virtual_stages=chunks, sequence_parallel=not full, attention="materialised",
    )  # fmt: skip
    return f"{row['params_b']} {row['method']}", job, 1e9 * float(row["iter_s"])


def _sc21(row: dict[str, str]) -> tuple[str, PlannedJob, float]:
    """Its FLOP/s count what is computed again."""
    hidden, layers, heads = (_whole(row, n) for n in ("hidden", "layers", "heads"))
    tensor, pipeline = _whole(row, "tp"), _whole(row, "pp")
    ranks, batch, seq = (_whole(row, n) for n in ("n_gpus", "global_batch", "seq_len"))
    work = 96.0 * batch * seq * layers * hidden**2
    work *= 1 + seq / (6 * hidden) + 51200 / (16 * layers * hidden)
    step = 1e9 * work / (ranks * float(row["tflops_per_gpu"]) * 1e12)
    replicas = ranks // (tensor * pipeline)
    micro = 1 if batch // replicas % 2 or pipeline > 8 else 2
    job = PlannedJob(
        _gpt(hidden, layers, heads), gpu("a100-80gb"), ranks // 8, 8, micro, seq, "full",
        accumulation=max(batch // (replicas * micro), 1), strategy="ddp", tensor_parallel=tensor,
        pipeline_parallel=pipeline, sequence_parallel=False, attention="materialised",
    )  # fmt: skip
    return f"{row['params_b']}B on {ranks}", job, step


def _kempner(row: dict[str, str]) -> tuple[str, PlannedJob, float]:
    """Its 7B is of Llama 3's vocabulary with Llama 2's sizes, as its table of memory has it."""
    sizes = {"Llama3-7B": "llama3-8b", "Llama3-13B": "llama2-13b", "Llama3-70B": "llama3-70b"}
    model = decoder(sizes[row["model"]], vocab=128256)
    ranks, nodes, tensor = (_whole(row, n) for n in ("n_gpus", "nodes", "tp"))
    job = PlannedJob(
        model, gpu("h200"), nodes, ranks // nodes, _whole(row, "micro_batch"),
        _whole(row, "seq_len"), "full", accumulation=_whole(row, "grad_accum"),
        tensor_parallel=tensor, kernels="compiled" if row["compile"] == "1" else "eager",
        sequence_parallel=False,
    )  # fmt: skip
    tokens = job.global_batch * job.seq
    label = f"{row['model']} on {ranks}, tp {tensor}"
    return label, job, 1e9 * tokens / float(row["tokens_per_s"])


def _fms(row: dict[str, str]) -> tuple[str, PlannedJob, float]:
    ranks, micro, seq = (_whole(row, n) for n in ("n_gpus", "micro_batch", "seq_len"))
    again = {"No AC": "none", "Selective AC": "selective", "Full AC": "full"}[row["act_ckpt"]]
    job = PlannedJob(
        decoder(row["model"].lower()), gpu(row["gpu"].split("-")[0].lower().replace(
            "a100", "a100-80gb")),
        ranks // 8, 8, micro, seq, again,
        strategy="hybrid_shard" if row["sharding"] == "HSDP" else "full_shard",
        kernels="compiled" if row["compile"] == "1" else "eager",
    )  # fmt: skip
    step = 1e9 * micro * seq / float(row["tokens_per_s_per_gpu"])
    return f"{row['model']} {row['gpu']} compile {row['compile']}", job, step


SOURCES: dict[str, tuple[str, Read]] = {
    "LLM-Foundry": ("llmfoundry_throughput.csv", _foundry),
    "Aleph Alpha": ("alephalpha_layout_sweep.csv", _alephalpha),
    "vTrain": ("vtrain_megatron_deepspeed_multi_node.csv", _vtrain),
    "torchtitan": ("torchtitan_benchmarks.csv", _torchtitan),
    "Megatron papers": ("megatron_papers.csv", _megatron),
    "KempnerForge": ("kempnerforge_h200.csv", _kempner),
    "FMS": ("fms_fsdp.csv", _fms),
    "NVIDIA": ("nvidia_megatron_bridge_nemo.csv", _nvidia),
}
