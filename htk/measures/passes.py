"""Forward or backward: which GPU activities autograd's threads launched."""

import numpy as np
import pyarrow as pa

from htk.columns.arrow import matching, numbers
from htk.columns.groups import Groups
from htk.columns.types import NONE, Mask

FORWARD, BACKWARD = "forward", "backward"


def backward_ops(cpu_ops: pa.Table, op_links: pa.Table) -> Mask:
    """Operators on threads where the autograd engine evaluates: gradients, and what is recomputed
    or gathered for them. CPU-only backward passes run on the caller's own thread: all of it counts.
    """
    engine = matching(
        cpu_ops["name"], lambda name: name.startswith("autograd::engine::evaluate_function")
    )
    columns = [numbers(t[c], NONE) for t, c in ((cpu_ops, "rank"), (cpu_ops, "cycle"))]
    threads = Groups.by_keys(np.column_stack([*columns, numbers(op_links["thread_index"], NONE)]))
    with_engine = np.zeros(len(threads), bool)
    with_engine[threads.group_ids[engine]] = True
    return np.asarray(with_engine[threads.group_ids])


def backward_kernels(cpu_ops: pa.Table, op_links: pa.Table, kernel_links: pa.Table) -> Mask:
    """GPU activities that were launched there."""
    row = numbers(kernel_links["op_row"], NONE)
    return np.asarray(np.append(backward_ops(cpu_ops, op_links), False)[row])
