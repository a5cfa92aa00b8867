"""Tables of many ranks made small enough for a picture: by medians, or by blocks of ranks."""

import numpy as np
import pyarrow as pa

from htk.answers.output.rank_groups import condense_ranks
from htk.base.columns.arrow import read_numbers

_MOST_BLOCKS = 64  # along a side of a map of pairs


def tabulate_ends(table: pa.Table, x: str, y: str, names: tuple[str, str]) -> pa.Table:
    """Return for each x the median and the highest y of the ranks."""
    values: dict[object, list[float]] = {}
    for key, value in zip(table[x].to_pylist(), table[y].to_pylist(), strict=True):
        values.setdefault(key, []).extend([] if value is None else [value])
    recorded = {key: of_key for key, of_key in values.items() if of_key}
    columns = {
        x: pa.array(list(recorded), table.schema.field(x).type),
        names[0]: pa.array([float(np.median(of_key)) for of_key in recorded.values()]),
        names[1]: pa.array([float(max(of_key)) for of_key in recorded.values()]),
    }
    return pa.table(columns)


def condense_rows(table: pa.Table, x: str, value: str) -> pa.Table:
    """Return a row for each x and each rank that is unlike the others, and the others' median."""
    ranks, row = np.unique(read_numbers(table["rank"]), return_inverse=True)
    keys = list(dict.fromkeys(table[x].to_pylist()))
    column_of = {key: column for column, key in enumerate(keys)}
    cells = np.full((len(ranks), len(keys)), np.nan)
    amounts = np.array(table[value].to_pylist(), float)
    cells[row, [column_of[key] for key in table[x].to_pylist()]] = amounts
    names, few = condense_ranks(ranks.tolist(), cells)
    flat = few.ravel()
    whose = [name for name in names for _ in keys]
    is_there = ~np.isnan(flat)
    columns = {
        x: pa.array(keys * len(names), table.schema.field(x).type),
        "ranks": pa.array(whose),
        value: pa.array(flat, mask=~is_there).cast(table.schema.field(value).type, safe=False),
    }
    return pa.table(columns).filter(pa.array(is_there))


def add_up_blocks(table: pa.Table, x: str, y: str, value: str) -> tuple[pa.Table, str, str]:
    """Return what ranks send to one another and the names of its columns: added up by blocks of
    ranks, each called by its first rank, where they are many."""
    pair = [read_numbers(table[name]) for name in (x, y)]
    most = max((int(side.max(initial=0)) for side in pair), default=0) + 1
    if most <= _MOST_BLOCKS:
        return table, x, y
    size = 8
    while most > size * _MOST_BLOCKS:
        size *= 2
    blocks = [side // size for side in pair]
    key, whose = np.unique(blocks[0] * most + blocks[1], return_inverse=True)
    sums = np.bincount(whose, read_numbers(table[value]).astype(float), len(key))
    ends = np.divmod(key, most)
    names = [f"{name}s_by_{size}" for name in (x, y)]
    columns = {name: pa.array(size * end) for name, end in zip(names, ends, strict=True)}
    columns[value] = pa.array(sums.astype(np.int64))
    return pa.table(columns), names[0], names[1]
