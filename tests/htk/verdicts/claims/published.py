"""Published training jobs as claims: what each row says of itself, and no more."""

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.plans.rows import load
from htk.physics.hardware import gpu
from htk.physics.presets import PRESETS, Decoder
from htk.verdicts.claims.described import ClaimedJob, Numbers

Rows = Iterator[tuple[str, ClaimedJob]]


def published(folder: Path) -> Rows:
    """Yield the source and the claim of every row that states enough."""
    for reader in (_planned, _gaudi, _oneflow, _bloom, _scaling, _latencies):
        yield from reader(folder)


def _planned(folder: Path) -> Rows:
    """Rows whose model and layout are stated in full."""
    for row in load(folder):
        job = row.job
        if job is None or job.lora_rank is not None:
            continue
        recipe = job.format.rate if job.precision != "fp16" else "fp16"
        yield row.source, ClaimedJob(
            job.gpu, job.ranks, Numbers(step_s=row.step_ns / 1e9), job.model, precision=recipe,
            seq=job.seq, micro_batch=job.micro_batch, global_batch=job.global_batch,
            tensor_parallel=job.tensor_parallel, pipeline_parallel=job.pipeline_parallel,
            virtual_stages=job.virtual_stages,
            # Sources seldom say whether layers are computed again: "none" may be unsaid.
            checkpointing=None if job.checkpointing == "none" else job.checkpointing,
            gpus_per_node=job.gpus_per_node, context_parallel=job.context_parallel,
            expert_parallel=job.expert_parallel, strategy=job.strategy, kernels=job.kernels,
            attention=job.attention,
        )  # fmt: skip


def inflated(job: ClaimedJob, factor: float) -> ClaimedJob:
    """Return the claim of a job so many times faster."""
    numbers = {
        n: v / factor if n == "step_s" else v * factor for n, v in job.numbers.stated.items()
    }
    return replace(job, numbers=Numbers(**numbers))


def _read(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _whole(text: str | None) -> int | None:
    return int(float(text)) if text and re.fullmatch(r"[\d.]+", text) else None


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"\d+(\.\d+)?", text))


def _gpt(name: str, hidden: int, layers: int, heads: int, vocab: int = 51_200) -> Decoder:
    return Decoder(name, layers, hidden, heads, heads, 4 * hidden, vocab, False, True, 2048)


def _gaudi(folder: Path) -> Rows:
    names = {"LLaMA V2 ": "llama2-", "LLaMA V3.1 ": "llama3-"}
    for row in _read(folder, "gaudi2_training"):
        name = row["model"]
        for old, new in names.items():
            name = name.replace(old, new)
        yield "Gaudi", ClaimedJob(
            gpu("gaudi2"), int(row["n"]), Numbers(tokens_per_s=float(row["tokens_per_s"])),
            PRESETS[name.lower()], precision="fp8", seq=int(row["seq_len"]),
            global_batch=int(row["global_batch"]),
        )  # fmt: skip


def _oneflow(folder: Path) -> Rows:
    for row in _read(folder, "dlperf_gpt_v100"):
        model = _gpt("gpt", int(row["hidden"]), int(row["layers"]), int(row["heads"]))
        yield "OneFlow", ClaimedJob(
            gpu("v100-16gb"), int(row["nodes"]) * int(row["gpus_per_node"]),
            Numbers(step_s=float(row["iter_ms"]) / 1e3), model, precision="fp16",
            seq=int(row["seq_len"]), micro_batch=int(row["micro_batch"]),
            global_batch=int(row["global_batch"]), tensor_parallel=int(row["tp"]),
            pipeline_parallel=int(row["pp"]),
        )  # fmt: skip


def _bloom(folder: Path) -> Rows:
    """Checkpointed; their TFLOP/s count what is computed again."""
    for row in _read(folder, "bigscience_sweeps"):
        if not _is_number(row["tflops"]) or float(row["tflops"]) == 0:
            continue
        tensor, stages, copies = (_whole(row[name]) or 1 for name in ("tp", "pp", "dp"))
        if row["gpus"] and not row["tp"]:
            tensor = max(int(row["gpus"]) // (stages * copies), 1)
        size = row["size"].removesuffix("B")
        yield "BigScience", ClaimedJob(
            gpu("v100-32gb" if row["gpu"] == "V100" else "a100-80gb"),
            _whole(row["gpus"]) or tensor * stages * copies,
            Numbers(tflops_per_gpu=float(row["tflops"])), precision="fp16", seq=2048,
            active_parameters=float(size) * 1e9 if _is_number(size) else None,
            micro_batch=_whole(row["mbs"]), global_batch=_whole(row["gbs"]),
            tensor_parallel=tensor, pipeline_parallel=stages, checkpointing="full",
        )  # fmt: skip


def _scaling(folder: Path) -> Rows:
    names = {"GPT-3 5B": "gpt3-5b", "GPT-3 126M": "gpt3-126m", "GPT-3 175B": "gpt3-175b"}
    for row in _read(folder, "weak_scaling"):
        if row["tokens_per_s"] and row["model"] in names:
            yield "weak scaling", ClaimedJob(
                gpu("a100-80gb"), int(row["n_gpus"]),
                Numbers(tokens_per_s=float(row["tokens_per_s"])), PRESETS[names[row["model"]]],
                seq=2048,
            )  # fmt: skip
        elif row["tflops_per_gpu"]:
            yield "weak scaling", ClaimedJob(
                gpu("h100"), int(row["n_gpus"]),
                Numbers(tflops_per_gpu=float(row["tflops_per_gpu"])), PRESETS["llama2-7b"],
                seq=4096,
            )  # fmt: skip


_NEUSIGHT: dict[str, Any] = {
    "NVIDIA_H100_80GB_HBM3": "h100", "NVIDIA_A100-PCIE-40GB": "a100-40gb-pcie",
    "NVIDIA_A100_80GB_PCIe": "a100-80gb-pcie", "NVIDIA_A100-SXM4-40GB": "a100-40gb",
    "AMD_Instinct_MI210": "mi210",
}  # fmt: skip
_PARAMETERS = {
    "gpt2_large": 774e6, "bert_large": 335e6, "gpt3_xl": 1.3e9, "opt_13": 1.3e9, "gpt3_27": 2.7e9,
}  # fmt: skip


def _latencies(folder: Path) -> Rows:
    """In single precision; of inference a third of the operations of training."""
    for row in _read(folder, "neusight_e2e"):
        if row["device"] in _NEUSIGHT and row["model"] in _PARAMETERS and row["e2e_ms"]:
            part = 1.0 if row["mode"] == "train" else 1 / 3
            ranks = 4 if row["variant"][-1:] == "4" or row["variant"].startswith("pp4") else 1
            yield "NeuSight", ClaimedJob(
                gpu(_NEUSIGHT[row["device"]]), ranks, Numbers(step_s=float(row["e2e_ms"]) / 1e3),
                active_parameters=part * _PARAMETERS[row["model"]], precision="fp32",
                seq=int(row["seq_len"]), global_batch=int(row["batch"]),
            )  # fmt: skip
