"""Does it fit? Layouts that ran or ran out of memory, classified by the memory model.

What fragmentation and libraries take is chosen on the other configurations each time.
"""

import csv
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from htk.models.decoder import decoder
from htk.models.layouts import Layout, held

_FRAGMENTATION = (1.0, 1.05, 1.1)
_RESERVED = (1e9, 3e9, 5e9, 7e9)
_CAPACITY = 80e9


@dataclass(frozen=True)
class Fits:
    """How often the answer was right."""

    n: int
    configurations: int
    right_pct: float
    missed: int  # ran out, said to fit
    false_alarms: int
    majority_pct: float  # always the more frequent answer


def classified(folder: Path) -> Fits:
    with (folder / "alephalpha_layout_sweep.csv").open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["step_time_s"] or r["error"] == "OOM Error"]
    bytes_held = np.array([_held(r) for r in rows])
    out = np.array([r["error"] == "OOM Error" for r in rows])
    names = ("seq_len", "n_gpus", "act_ckpt", "attn_kernel", "rms_kernel")
    config = np.array([" ".join(r[n] for n in names) for r in rows])
    said = np.zeros(len(rows), bool)
    for left in sorted(set(config.tolist())):
        mine = config == left
        best = max(
            product(_FRAGMENTATION, _RESERVED),
            key=lambda s: float((_said(bytes_held[~mine], s) == out[~mine]).mean()),
        )
        said[mine] = _said(bytes_held[mine], best)
    share = float(out.mean())
    return Fits(
        len(rows),
        len(set(config.tolist())),
        100 * float((said == out).mean()),
        int((out & ~said).sum()),
        int((said & ~out).sum()),
        100 * max(share, 1 - share),
    )


def _said(bytes_held: NDArray[np.float64], slack: tuple[float, float]) -> NDArray[np.bool_]:
    return np.asarray(bytes_held * slack[0] + slack[1] > _CAPACITY)


def _held(row: dict[str, str]) -> float:
    tensor, pipeline, micro = int(row["tp"]), int(row["pp"]), int(row["micro_batch"])
    data = int(row["n_gpus"]) // (tensor * pipeline)
    layout = Layout(
        data,
        tensor,
        pipeline,
        micro,
        int(row["seq_len"]),
        max(1, int(row["global_batch"]) // (data * micro)),
        checkpointing=row["act_ckpt"] == "every_layer",
        sequence_parallel=row["seq_parallel"] in ("1.0", "True"),
        flash=row["attn_kernel"].startswith("flash"),
        fused_norms=row["rms_kernel"] == "True",
        split_logits=False,  # as it gathers them
    )
    # Its vocabulary follows from the MFU that it states: 14.0 billion parameters.
    return held(decoder("llama2-13b", vocab=128000), layout)
