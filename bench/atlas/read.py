"""Rows of the unpacked wheel of aiconfigurator-core: one kernel's sizes, its library, its time."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from htk.physics.hardware import gpu
from htk.physics.kernel_laws import FORMATS

GPUS = {
    "a100_sxm": "a100-80gb", "h100_sxm": "h100", "h200_sxm": "h200", "l40s": "l40s",
    "b200_sxm": "b200", "b300_sxm": "b300", "gb200": "gb200", "gb300": "gb300",
    "rtx_pro_6000_server": "rtx-pro-6000-server",
}  # fmt: skip
_FORMATS = {
    "bfloat16": "bf16", "float16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block",
    "nvfp4": "fp4", "int8_wo": "int8_weights", "int4_wo": "int4_weights",
    "w4a16_mxfp4": "fp4_weights",
}  # fmt: skip
_FILES = {
    "matmul": "gemm/*/*/gemm_perf.parquet",
    "attention_prefill": "attention/*/*/context_attention_perf.parquet",
    "attention_decode": "attention/*/*/generation_attention_perf.parquet",
    "experts": "moe/*/*/moe_perf.parquet",
}
_ATTENTION = {
    "batch_size": "batch", "num_heads": "heads", "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim", "window_size": "window",
}  # fmt: skip
_EXPERTS = {
    "num_tokens": "tokens", "hidden_size": "hidden", "inter_size": "ffn", "topk": "topk",
    "num_experts": "experts", "moe_tp_size": "tp", "moe_ep_size": "ep",
}  # fmt: skip
# What a library's call does beside the product, to find the scale of its left operand and to cast
# it: bytes moved for each element, and what the smallest takes in ns. TensorRT-LLM's in FP8 is
# measured alone in the same wheel; of the others, calls on an H100 were held to kernels alone
# (bench/gpu/recorded/kernels.csv), of blocks and FP4 it is one pass.
_CASTS = {
    "fp8": {"trtllm": (6.8, 8_500.0), "sglang": (4.6, 3_000.0), "vllm": (6.8, 3_000.0)},
    "fp8_block": dict.fromkeys(("trtllm", "sglang", "vllm"), (3.0, 1_500.0)),
    "fp4": dict.fromkeys(("trtllm", "sglang", "vllm"), (2.6, 1_500.0)),
}
_COPY_NS = 1_500.0
_ACHIEVED = 0.8  # of the memory's rate


def read_rows(wheel: Path, folder: str, op: str) -> pd.DataFrame:
    """Return the newest rows of each library, as the columns of the laws, `library` and `ns`."""
    parts = [_read_file(path, op) for path in _newest_files(wheel, folder, op)]
    rows = pd.concat([part for part in parts if len(part)], ignore_index=True)
    beside = _time_beside(op, GPUS[folder], rows)
    return rows.assign(ns=np.maximum(rows["ns"] - beside, rows["ns"] / 4))


def _newest_files(wheel: Path, folder: str, op: str) -> Iterator[Path]:
    by_library: dict[str, list[Path]] = {}
    for path in sorted((wheel / "systems" / "data" / folder).glob(_FILES[op])):
        by_library.setdefault(path.parts[-3], []).append(path)
    for library, paths in by_library.items():
        newest = max(paths, key=lambda path: (pq.read_metadata(path).num_rows, path.parts[-2]))
        # Experts are collected model by model: later versions hold other models.
        yield from paths if op == "experts" and library != "trtllm" else [newest]


def _read_file(path: Path, op: str) -> pd.DataFrame:
    table = pq.read_table(path).to_pandas()
    if op.startswith("attention") and "window_size" not in table:
        table["window_size"] = 0
    rows = pd.DataFrame({"library": path.parts[-3], "ns": table["latency"] * 1e6}, table.index)
    if op == "matmul":
        rows[["m", "n", "k"]] = table[["m", "n", "k"]]
        rows["format"] = table["gemm_dtype"].map(_FORMATS)
    elif op == "experts":
        rows[list(_EXPERTS.values())] = table[list(_EXPERTS)]
        rows["format"] = table["moe_dtype"].map(_FORMATS)
        rows["distribution"] = table["distribution"]
        rows = rows[~table["kernel_source"].str.contains("nongated")]
    else:
        rows[list(_ATTENTION.values())] = table[list(_ATTENTION)]
        decode = op == "attention_decode"
        rows["seq"] = table["isl"] + table["step"]
        rows["format"] = table["kv_cache_dtype"].map(_FORMATS)
        if not decode:
            rows = rows[(table["attn_dtype"] == table["kv_cache_dtype"]) & (table["step"] == 0)]
    return rows[rows["format"].notna() & (rows["ns"] > 0)]


def _time_beside(op: str, name: str, rows: pd.DataFrame) -> np.ndarray:
    """Return the ns of a call that are no part of the kernel which a trace would show: the cast of
    a product's left operand, and writing keys and values to a cache."""
    rate = _ACHIEVED * gpu(name).memory_gbps
    if op == "matmul":
        pairs = zip(rows["format"], rows["library"], strict=True)
        casts = np.array([_CASTS.get(kept, {}).get(library, (0.0, 0.0)) for kept, library in pairs])
        return casts[:, 0] * rows["m"] * rows["k"] / rate + casts[:, 1]
    if op == "attention_prefill":
        each = 4 * rows["format"].map({name: kept[1] for name, kept in FORMATS.items()})
        moved = each * rows["batch"] * rows["seq"] * rows["kv_heads"] * rows["head_dim"]
        return (moved / rate).to_numpy() + _COPY_NS
    return np.zeros(len(rows))


def read_collectives(wheel: Path, folder: str) -> pd.DataFrame:
    """Return NCCL's times in 16 bits, and those of engines' own all-reduces in CUDA graphs."""
    parts = []
    data = wheel / "systems" / "data" / folder / "comm"
    for path in sorted(data.glob("*/*/nccl_perf.parquet")):
        table = pq.read_table(path).to_pandas()
        table = table[table["nccl_dtype"] == "half"]
        parts.append(_name_collective(table, f"nccl {path.parts[-2]}"))
    for path in sorted(data.glob("*/*/custom_allreduce_perf.parquet")):
        table = pq.read_table(path).to_pandas()
        table = table[~table["kernel_source"].str.contains("eager")]
        parts.append(_name_collective(table, path.parts[-3]))
    return pd.concat(parts, ignore_index=True)


def _name_collective(table: pd.DataFrame, library: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "op": table["op_name"],
            "ranks": table["num_gpus"],
            "bytes": 2 * table["message_size"],
            "ns": table["latency"] * 1e6,
            "library": library,
        }
    )
