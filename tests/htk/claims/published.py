"""Published training jobs as claims: what each row says of itself, and no more."""

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from htk.claims.described import ClaimedJob, Numbers
from htk.models.hardware import gpu
from htk.models.presets import PRESETS, Decoder

Rows = Iterator[tuple[str, ClaimedJob]]


def published(folder: Path) -> Rows:
    """Yield the source and the claim of every row whose GPU the catalogue has."""
    for reader in (
        _layouts, _foundry, _megatron, _kempner, _fms, _gaudi, _oneflow, _bloom, _bridge, _titan,
        _vtrain, _scaling, _latencies,
    ):  # fmt: skip
        yield from reader(folder)


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


def _layouts(folder: Path) -> Rows:
    model = replace(PRESETS["llama2-13b"], vocab=128_000)
    for row in _read(folder, "alephalpha_layout_sweep"):
        if row["step_time_s"]:
            yield "Aleph Alpha", ClaimedJob(
                gpu("a100-80gb"), int(row["n_gpus"]), Numbers(step_s=float(row["step_time_s"])),
                model, seq=int(row["seq_len"]), micro_batch=int(row["micro_batch"]),
                global_batch=int(row["global_batch"]), tensor_parallel=int(row["tp"]),
                pipeline_parallel=int(row["pp"]),
                checkpointing="full" if row["act_ckpt"] == "every_layer" else "none",
            )  # fmt: skip


_MPT = {
    "125m": (768, 12, 12), "760m": (1536, 24, 12), "1b": (2048, 24, 16), "3b": (2560, 32, 20),
    "7b": (4096, 32, 32), "30b": (7168, 48, 56), "70b": (8192, 64, 64),
}  # fmt: skip


def _foundry(folder: Path) -> Rows:
    names = {"a100_40gb": "a100-40gb", "a100_80gb": "a100-80gb", "h100_80gb": "h100"}
    for row in _read(folder, "llmfoundry_throughput"):
        yield "LLM-Foundry", ClaimedJob(
            gpu(names[row["gpu"]]), int(row["n_gpus"]),
            Numbers(tokens_per_s_per_gpu=float(row["tokens_per_s_per_gpu"])),
            _gpt(row["model"], *_MPT[row["model"]], vocab=50_368),
            precision="fp8" if row["precision"] == "amp_fp8" else "bf16", seq=int(row["seq_len"]),
            micro_batch=int(row["micro_batch"]), global_batch=int(row["global_batch_seqs"]),
            checkpointing="full" if row["act_ckpt"] == "True" else "none",
        )  # fmt: skip


def _megatron(folder: Path) -> Rows:
    """Their TFLOP/s count what is computed again (arXiv:2104.04473)."""
    for row in _read(folder, "megatron_papers"):
        if not row["tflops_per_gpu"]:
            continue
        layers = _whole(row["layers"])
        model = _gpt("gpt", int(row["hidden"]), layers, int(row["heads"])) if layers else None
        ways = re.search(r"TP(\d+) PP(\d+)", row["method"])
        tensor, stages = ways.groups() if ways else (row["tp"] or 1, row["pp"] or 1)
        yield "Megatron", ClaimedJob(
            gpu("a100-80gb"), int(row["n_gpus"] or 8),
            Numbers(tflops_per_gpu=float(row["tflops_per_gpu"])), model,
            float(row["params_b"]) * 1e9, seq=2048, micro_batch=_whole(row["micro_batch"]),
            global_batch=_whole(row["global_batch"]), tensor_parallel=int(tensor),
            pipeline_parallel=int(stages), checkpointing="full",
        )  # fmt: skip


def _kempner(folder: Path) -> Rows:
    names = {"Llama3-7B": "llama3-8b", "Llama3-13B": "llama2-13b", "Llama3-70B": "llama3-70b"}
    for row in _read(folder, "kempnerforge_h200"):
        yield "KempnerForge", ClaimedJob(
            gpu("h200"), int(row["n_gpus"]), Numbers(tokens_per_s=float(row["tokens_per_s"])),
            PRESETS[names[row["model"]]], seq=int(row["seq_len"]),
            micro_batch=int(row["micro_batch"]), tensor_parallel=int(row["tp"]),
            checkpointing=row["act_ckpt"], gpus_per_node=4,
        )  # fmt: skip


def _fms(folder: Path) -> Rows:
    for row in _read(folder, "fms_fsdp"):
        name = row["model"].lower()
        yield "FMS", ClaimedJob(
            gpu("a100-80gb" if row["gpu"].startswith("A100") else "h100"), int(row["n_gpus"]),
            Numbers(tokens_per_s_per_gpu=float(row["tokens_per_s_per_gpu"])),
            PRESETS.get(name), 34e9 if name not in PRESETS else None, seq=int(row["seq_len"]),
            micro_batch=int(row["micro_batch"]),
            checkpointing={"No AC": "none", "Full AC": "full"}.get(row["act_ckpt"], "selective"),
        )  # fmt: skip


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


def _bridge(folder: Path) -> Rows:
    for row in _read(folder, "nvidia_megatron_bridge_nemo"):
        if not _is_number(row["model_tflops_per_gpu"]):
            continue
        name = row["system"].removeprefix("DGX-").lower()
        words = row["precision"]
        precision = "fp4" if "NVFP4" in words else "fp8" if "FP8" in words else "bf16"
        yield "Megatron Bridge", ClaimedJob(
            gpu(name), int(row["n_gpus"]),
            Numbers(tflops_per_gpu=float(row["model_tflops_per_gpu"])), precision=precision,
        )  # fmt: skip


def _titan(folder: Path) -> Rows:
    for row in _read(folder, "torchtitan_benchmarks"):
        rate = row["tps_per_gpu"]
        if not _is_number(rate) or row["cp"] not in ("", "1"):
            continue
        name = re.sub(r"llama3(\.1)?-", "llama3-", row["model"].lower())
        kinds = {"full": "full", "none": "none"}
        yield "torchtitan", ClaimedJob(
            gpu({"A100": "a100-80gb", "H200": "h200"}.get(row["gpu"][:4], "h100")),
            int(row["n_gpus"]), Numbers(tokens_per_s_per_gpu=float(rate)), PRESETS[name],
            precision="fp8" if row["precision"].startswith("float8") else "bf16",
            seq=int(row["seq_len"]), micro_batch=_whole(row["local_batch"]),
            tensor_parallel=int(row["tp"] or 1), pipeline_parallel=int(row["pp"] or 1),
            checkpointing=kinds.get(row["ac"], "selective"),
        )  # fmt: skip


def _vtrain(folder: Path) -> Rows:
    for row in _read(folder, "vtrain_megatron_deepspeed_multi_node"):
        model = _gpt("gpt", int(row["hidden"]), int(row["layers"]), int(row["heads"]))
        yield "vTrain", ClaimedJob(
            gpu("a100-80gb"), int(row["n_gpus"]), Numbers(step_s=float(row["iter_ms"]) / 1e3),
            model, seq=int(row["seq_len"]), micro_batch=int(row["micro_batch"]),
            global_batch=int(row["global_batch"]), tensor_parallel=int(row["tp"]),
            pipeline_parallel=int(row["pp"]), checkpointing="full",
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
