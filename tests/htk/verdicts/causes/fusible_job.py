"""A job whose kernels can be fused or not, and what is said of it."""

from pathlib import Path
from typing import Any

from bench.causes import causes_of

JOB: dict[str, Any] = {
    "model": "check",
    "layers": 4,
    "hidden": 1024,
    "ffn": 2816,
    "heads": 16,
    "vocab": 32000,
    "gpu": "a100-80gb",
    "gpus_per_node": 2,
    "micro_batch": 2,
    "seq": 1024,
    "strategy": "ddp",
    "fused_loss": True,
    "steps": 4,
    "seed": 3,
}


def cause_of(folder: Path, finding: str) -> dict[str, Any] | None:
    return next((row for row in causes_of(folder) if row["finding"] == finding), None)
