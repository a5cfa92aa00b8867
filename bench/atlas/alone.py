"""The atlas held to kernels alone, as the profiler timed them on an H100 of htk's own."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from htk.physics.hardware import gpu
from htk.physics.kernel_time import estimate_kernels

_RECORDED = Path(__file__).parents[1] / "gpu" / "recorded" / "kernels.csv"
_FORMATS = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8"}
_LONG_NS = 1e4


def judge_kernels_alone() -> Iterator[tuple[str, str, int, list[float]]]:
    """Yield an operation, its format, the kernels, and quantiles of expected over recorded times
    with the share that the interval holds, in percent."""
    table = pd.read_csv(_RECORDED)
    table = table[(table["kernel_ns"] >= _LONG_NS) & table["precision"].isin(_FORMATS)]
    table = table[table["op"].isin(["matmul", "attention_prefill", "attention_decode"])]
    names = table["op"] + table["layout"].map(lambda text: f" ({text})").where(
        table["op"] == "attention_prefill", ""
    )
    for (name, kept), rows in table.groupby([names, table["precision"].map(_FORMATS)]):
        sizes = {
            column: rows[column].to_numpy(np.float64)
            for column in ("m", "n", "k", "batch", "seq", "heads", "kv_heads", "head_dim")
        }
        sizes["window"] = np.zeros(len(rows))
        recorded = rows["kernel_ns"].to_numpy(np.float64)
        times = estimate_kernels(gpu("h100"), str(name).partition(" ")[0], str(kept), sizes)
        over = np.quantile(times.expected / recorded, [0.1, 0.5, 0.9]).tolist()
        missed = 100 * np.median(np.abs(times.expected / recorded - 1))
        held = 100 * np.mean((times.low <= recorded) & (recorded <= times.high))
        yield str(name), str(kept), len(rows), [*over, float(missed), float(held)]
