"""How many tiles each block of a matrix product computes, where one block computes several.

A persistent kernel (Hopper, Blackwell) launches about one block for each multiprocessor, however
large its product, so that its grid does not tell how often it goes round. The name tells its tile
(`…tilesize128x128x64…`, `nvjet_hsh_128x256_64x4_…` and, from CUDA 13 on,
`nvjet_sm90_tst_128x256_64x4_…`, `cutlass3x_sm90_…_128x128x64_2x1x1_…`), shapes the size of its
result: [8944, 1024] by [1024, 1024] are 560 tiles of 128 by 128, on 120 blocks.
Blocks take the next tile as soon as they are done, and a tile's end overlaps the next one's
beginning, so that such products take as long as their tiles, not as whole waves.
"""

import re
from functools import lru_cache
from math import ceil

import numpy as np

from htk.base.columns.coded_texts import CodedTexts
from htk.base.columns.groups import Groups
from htk.base.columns.types import Floats, Mask
from htk.whatif.operator_shapes import product_sizes

_TILE = re.compile(
    r"tilesize(\d+)x(\d+)x|nvjet_(?:sm\d+_)?[a-z]+_(\d+)x(\d+)_|"
    r"cutlass3x_sm\d+\w*?_(\d+)x(\d+)x\d+_\d+x\d+x\d+_"
)
_SEVERAL = 1.2  # tiles of a block: fewer may come of how a library rounds its grid
_MOST = 1 << 20  # of a tile's sides, of a grid's


def count_waves(
    names: CodedTexts, dims: CodedTexts, grids: CodedTexts, blocks: Floats
) -> tuple[Floats, Mask]:
    """Return the waves of each kernel, and which kernels share their tiles evenly.

    `blocks`: waves by the launched blocks alone. Of persistent kernels without shapes: NaN.
    """
    columns = np.column_stack([texts.codes for texts in (names, dims, grids)])
    launches = Groups.by_keys(columns)
    each = [
        _tiles_of_a_block(names.distinct[n], dims.distinct[d], grids.distinct[g])
        for n, d, g in launches.keys.tolist()
    ]
    tiles = np.array(each, np.float64)[launches.group_ids] if each else np.empty(0)
    several = tiles > _SEVERAL
    persistent = np.isin(names.codes, np.unique(names.codes[several]))
    waves = np.where(several, tiles, blocks)
    return np.where(persistent & np.isnan(tiles), np.nan, waves), persistent


@lru_cache(maxsize=4096)
def _tiles_of_a_block(name: str | None, dims: str | None, grid: str | None) -> float:
    """Return the tiles of the result over the launched blocks; NaN: not known."""
    named = _TILE.search(name or "")
    sizes = product_sizes(dims or "[]")
    launched = _count_blocks(grid)
    if named is None or sizes is None or not launched:
        return float("nan")
    sides = [int(side) for side in named.groups() if side is not None]
    if not all(0 < side < _MOST for side in sides):
        return float("nan")
    tall, wide = sides
    m, n, _ = sizes  # which side of a tile lies along which, libraries do not agree on
    tiles = min(ceil(m / tall) * ceil(n / wide), ceil(m / wide) * ceil(n / tall))
    return tiles / launched


def _count_blocks(grid: str | None) -> int:
    """Return the blocks of a grid such as [30,4,1]; 0: not known."""
    sides = [int(side) for side in re.findall(r"\d{1,10}", grid or "")]
    return int(np.prod(sides, dtype=np.float64)) if sides else 0
