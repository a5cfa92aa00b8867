"""Which collectives of a data-parallel profile reduce gradients, and which something else.

DDP reduces a bucket where autograd accumulates the bucket's last gradient. What another node of
autograd reduces is part of the computation (synchronised batch norm); what is reduced in the
forward pass, before the first backward or behind the optimizer is a loss, a metric or a buffer. A
few numbers reduced between backward and optimizer are the norm of the gradients.
"""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.names.phases import ENGINE
from htk.base.schema.operation_types import CODES
from htk.traces.trace.trace import Trace

FEW_ELEMENTS = 16  # a loss or a norm, neither activations nor gradients
_GRADIENTS = (CODES["grads_all_reduce"], CODES["grads_reduce_scatter"])
_CLIP = CODES["clip_grads"]
_OPTIMIZER = CODES["optimizer"]
_BACKWARD = CODES["backward_compute"]
_DEEPEST = 64  # operators round a launch; more is damage
_OTHER_NODE = 1
_ACCUMULATES = 2


def types_of_reductions(
    trace: Trace, collectives: pa.Table, kernel: Ints, type_: Ints, in_forward: Mask
) -> Ints:
    """Return the type of operation of each collective, of which all reductions were taken to be of
    gradients; NONE: it is none."""
    elements = read_numbers(collectives["in_elements"], NONE)
    few = (elements >= 0) & (elements <= FEW_ELEMENTS)
    node = np.zeros(len(kernel), np.int64)
    launched = kernel != NONE
    node[launched] = _find_nodes(trace, kernel[launched])
    reduces = type_ == CODES["grads_all_reduce"]
    accumulates = bool((reduces & (node == _ACCUMULATES)).any())
    computes = reduces & (node == _OTHER_NODE) & accumulates
    type_ = np.where(reduces & (node == 0) & few, _CLIP, type_)
    return np.where(computes | (reduces & in_forward), NONE, type_)


def _find_nodes(trace: Trace, kernel: Ints) -> Ints:
    """Return what sort of node of autograd each kernel was launched in; 0: in none."""
    codes, listed = codes_of(trace.tables["cpu_ops"]["name"])
    names = listed.to_pylist()
    sorts = [
        0 if not name.startswith(ENGINE) else 2 if "AccumulateGrad" in name else 1 for name in names
    ]
    sort_of = np.array([*sorts, 0], np.int64)[codes]
    parent = read_numbers(trace.tables["op_links"]["parent_row"], NONE)
    op = read_numbers(trace.tables["kernel_links"]["op_row"], NONE)[kernel]
    sort_of = np.append(sort_of, 0)
    parent = np.append(parent, NONE)
    sort = sort_of[op]
    for _ in range(_DEEPEST):
        if (op == NONE).all():
            break
        op = parent[op]
        sort = np.where(sort == 0, sort_of[op], sort)
    return np.asarray(sort, np.int64)


def reductions_of_gradients(columns: dict[str, Ints]) -> dict[str, Ints]:
    """Return rows without reductions before the first backward or behind the optimizer, and with
    one row a step for those of the norm; what the optimizer computes before them is no row."""
    of = Groups.by_keys([columns["rank"], columns["step"]])
    rows = dict(columns)
    ids = of.group_ids
    launched = columns["launched"]
    type_ = columns["type"]
    low = np.iinfo(np.int64).min
    never = np.iinfo(np.int64).max
    last_optimizer = of.max(np.where(type_ == _OPTIMIZER, launched, low))[ids]
    is_backward = type_ == _BACKWARD
    clip = type_ == _CLIP
    first_backward = of.min(np.where(is_backward, launched, never))[ids]
    last_backward = of.max(np.where(is_backward, launched, low))[ids]
    others = (clip | np.isin(type_, _GRADIENTS)) & (launched < first_backward)
    others |= clip & (launched < last_backward)
    others |= (clip | np.isin(type_, _GRADIENTS)) & (
        (last_optimizer > low) & (launched > last_optimizer)
    )
    clip &= ~others
    last_clip = of.max(np.where(clip, launched, low))[ids]
    first_clip = of.min(np.where(clip, launched, never))[ids]
    end = of.max(np.where(clip, columns["end_ns"], low))[ids]
    rows["end_ns"] = np.where(clip, end, columns["end_ns"])
    norm = (type_ == _OPTIMIZER) & (launched < last_clip)
    kept = ~others & ~norm & ~(clip & (launched != first_clip))
    return {name: values[kept] for name, values in rows.items()}
