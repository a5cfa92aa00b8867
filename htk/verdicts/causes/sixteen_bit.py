"""Matrix products in 16 bit on a GPU that has 8-bit floats. It changes what is computed, so that no
time is promised."""

import re

from htk.base.columns.arrow import match_texts
from htk.base.core.humanize import pluralize_count, shorten_text
from htk.verdicts.causes.cause import Cause, find_costliest
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "matrix products in 16 bit on a GPU with FP8"
_LEAST = 0.3  # of the time of compute kernels
_SIXTEEN_BIT = re.compile(r"bf16|fp16|f16|h16|hgemm|hmma|BFloat16|half|Half|_HHS_|_BBS_")
_FEWER_BITS = re.compile(r"fp8|f8|e4m3|e5m2|E4m3|fp4|int8|i8|s8|u4b8|marlin")


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    work = recorded.work
    device = recorded.device
    if device is None or not device.has("fp8"):
        return []
    rows = work.of_families("gemm") & match_texts(work.totals["name"], _is_sixteen_bit)
    length = work.length
    if not rows.any() or length[rows].sum() < _LEAST * length[work.compute].sum():
        return []
    names = find_costliest(work.names, work.name, length * rows)
    ways = recorded.program.advise(" (torchao.float8, TransformerEngine)", "")
    cause = Cause(
        FINDING,
        f"{pluralize_count(work.count(rows), 'kernel')}, "
        f"{recorded.spent(int(length[rows].sum()))}, at "
        f"most half of it: {', '.join(map(shorten_text, names))}",
        f"where accuracy allows: FP8 for large linear layers{ways}, checked against a run in bf16",
        None,
        "kernel_families",
        names,
        work.example(rows),
    )
    return [cause]


def _is_sixteen_bit(name: str) -> bool:
    return bool(_SIXTEEN_BIT.search(name)) and not _FEWER_BITS.search(name)
