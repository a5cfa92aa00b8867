"""What tells the sizes of a server's experts, which no argument of their operator does: the
matrices that it makes inside, and its kernels.

A mixture's operator takes hidden states and the router's scores; its weights are the layer's own.
Inside it allocates what its products write, and their kernels' names say the types they multiply.
"""

import json
from collections import defaultdict

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, decode_texts, match_texts
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.schema import STRING
from htk.physics.op_costs.experts import BY_BUFFERS
from htk.quantities.measures.call_tree import CallTree

_MADE = ("aten::empty", "aten::empty_strided")


def with_buffers(
    cpu_ops: pa.Table, tree: CallTree, launcher: Ints, kernels: pa.ChunkedArray
) -> pa.Table:
    """Return the operators; the recorded values of mixtures are followed by the sizes and types of
    what each makes inside, and the names of its kernels."""
    mixtures = np.flatnonzero(match_texts(cpu_ops["name"], lambda name: name in BY_BUFFERS))
    if not len(mixtures):
        return cpu_ops
    within = _mixture_of(tree, mixtures)
    allocations = np.flatnonzero(
        (within != NONE) & match_texts(cpu_ops["name"], lambda name: name in _MADE)
    )
    buffers = _list_values(
        within[allocations], cpu_ops["concrete_inputs"].take(pa.array(allocations)).to_pylist()
    )
    rows = np.flatnonzero(take_or(within, launcher) != NONE)
    names = _list_values(within[launcher[rows]], kernels.take(pa.array(rows)).to_pylist())
    texts = [json.dumps([buffers[r], sorted(set(names[r]))]) for r in mixtures.tolist()]
    mask = np.zeros(cpu_ops.num_rows, bool)
    mask[mixtures] = True
    return _replace_texts(cpu_ops, "concrete_inputs", mask, texts)


def _mixture_of(tree: CallTree, mixtures: Ints) -> Ints:
    """Return the mixture that each operator is, or is called by, or NONE."""
    within = fill_none(len(tree.parent))
    within[mixtures] = mixtures
    for rows in tree.levels[1:]:
        above = within[tree.parent[rows]]
        within[rows] = np.where(above != NONE, above, within[rows])
    return within


def _list_values(keys: Ints, values: list[str | None]) -> dict[int, list[str]]:
    """Return the values of each key; layers times steps of them, a dozen each."""
    lists: dict[int, list[str]] = defaultdict(list)
    for key, value in zip(keys.tolist(), values, strict=True):
        if value is not None:
            lists[key].append(value)
    return lists


def _replace_texts(table: pa.Table, column: str, mask: Mask, texts: list[str]) -> pa.Table:
    codes, dictionary = codes_of(table[column])
    codes = codes.copy()
    new = pa.array(texts, STRING).dictionary_encode()
    codes[mask] = len(dictionary) + new.indices.to_numpy()
    values = pa.concat_arrays([dictionary.cast(STRING), new.dictionary])
    position = table.column_names.index(column)
    return table.set_column(position, column, decode_texts(codes, values))
