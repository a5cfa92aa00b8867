"""Write the atlas and the page about it: python -m bench.atlas WHEEL."""

import hashlib
import json
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.atlas.alone import judge_kernels_alone
from bench.atlas.distil import MeasuredGrid, build_grids
from bench.atlas.judge import judge_misses, learn_intervals, leave_out
from bench.atlas.ratios import judge_ratios
from bench.atlas.read import GPUS
from htk.physics.kernel_atlas import FILE, INDEX, pack_table
from htk.physics.kernel_time import BASES

_PAGE = Path(__file__).parents[2] / "docs" / "kernel_scorecard.md"
_SOURCE = "aiconfigurator-core 0.12.0"
_WORDS = """# Kernel scorecard

How far the [atlas of measured kernels](kernels.md) misses kernels of 10 µs and more that it was not
shown. `python -m bench.atlas WHEEL` writes this page and the atlas, in one run, from {kernels:,}
kernels of {source} on {gpus} accelerators; the file is {megabytes:.1f} MB (SHA-256
{digest}).

Typical is the median over libraries. Intervals were learnt from one tenth of the kernels, and
judged on another; where there are few, from each second tenth, and judged on those between.

## Left out

*between measured sizes*: each tenth size left out. *between measured shapes*: each tenth shape,
with all its sizes. *measured on a sibling*: the accelerator left out altogether, others of its
architecture kept. *formula*: all of its architecture left out.

| operation | format | left out | kernels | median % | 90th % | 90 % interval holds |
| --- | --- | --- | ---: | ---: | ---: | ---: |
"""


def write_atlas(wheel: Path) -> None:
    grids = [grid for folder in GPUS for grid in build_grids(wheel, folder)]
    misses = list(leave_out(grids))
    intervals = learn_intervals(misses)
    tables: dict[str, dict[str, list[str]]] = {}
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_LZMA) as atlas:
        for grid in grids:
            kept = tables.setdefault(grid.gpu, {}).setdefault(grid.op, [])
            kept.append(grid.number_format)
            _write_entry(
                atlas, f"{grid.gpu}/{grid.op}/{grid.number_format}", pack_table(grid.to_table())
            )
        index: dict[str, Any] = {"source": _SOURCE, "tables": tables, "misses": intervals}
        _write_entry(atlas, INDEX, json.dumps(index).encode())
    _PAGE.write_text(_describe_atlas(grids, judge_misses(misses, intervals)), encoding="utf-8")


def _write_entry(atlas: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Write an entry without a date, so that the same kernels give the same file."""
    atlas.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_LZMA)


def _describe_atlas(grids: Sequence[MeasuredGrid], judged: pd.DataFrame) -> str:
    kernels = sum(int(np.isfinite(grid.typical).sum()) for grid in grids)
    megabytes = FILE.stat().st_size / 1e6
    lines = [
        _WORDS.format(
            kernels=kernels, source=_SOURCE, gpus=len(GPUS), megabytes=megabytes,
            digest=hashlib.sha256(FILE.read_bytes()).hexdigest(),
        ).rstrip()
    ]  # fmt: skip
    for row in judged.itertuples():
        lines.append(
            f"| {row.op} | {row.format} | {BASES[int(row.near)]} | {row.kernels:,} | "
            f"{row.median:.1f} | {row.ninth:.1f} | {100 * row.held:.0f} |"
        )
    lines += ["", "## Ratios of products", "", "Both sides were left out.", ""]
    lines += ["| ratio | pairs | median % | 90th % |", "| --- | ---: | ---: | ---: |"]
    names = ("rows × 2, 4, 8 on one accelerator", "two accelerators at one size")
    for name, (count, median, ninth) in zip(names, judge_ratios(grids), strict=True):
        lines.append(f"| {name} | {count:,.0f} | {median:.1f} | {ninth:.1f} |")
    lines += ["", "## Kernels alone on an H100", ""]
    lines += ["Expected over recorded by the profiler; these kernels taught nothing.", ""]
    lines += ["| operation | format | kernels | 10th | median | 90th | median miss % | held % |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name, kept, count, (low, middle, high, missed, held) in judge_kernels_alone():
        lines.append(
            f"| {name} | {kept} | {count} | {low:.2f} | {middle:.2f} | {high:.2f} | {missed:.1f} | "
            f"{held:.0f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_atlas(Path(sys.argv[1]))
