"""The Python call and the nn.Module round each operator, each launch and each Python call."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import build_numbers, codes_of, decode_texts, mark_valid, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import Nested, Rows, Threads, nest_rows
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, fill_none, take_or
from htk.base.schema import INT32, INT64, STRING
from htk.base.schema.links import LAUNCH_CALLERS, OP_CALLERS, PYTHON_LINKS

MODULE = "nn.Module: "


def op_callers(cpu_ops: pa.Table, python_calls: pa.Table, op_links: pa.Table) -> pa.Table:
    """Innermost Python call, and the path of nn.Modules, round each operator."""
    threads = Threads()
    calls = nest_rows(python_calls, threads)
    caller = calls.around(threads.number_threads(cpu_ops), read_numbers(cpu_ops["start_ns"]))
    path, paths = module_paths(python_calls, calls)
    module = take_or(path, caller)
    by_python = module != NONE
    recorded, recorded_paths = codes_of(cpu_ops["module_hierarchy"])
    by_hierarchy = recorded != NONE
    module = np.where(by_hierarchy, recorded + len(paths), module)
    every = pa.concat_arrays([paths, recorded_paths.cast(STRING)])
    by_forward = _from_forward(module, op_links)
    how = np.select([by_hierarchy, by_python, by_forward], [0, 1, 2], NONE)
    return pa.table(
        [
            build_numbers(caller, INT64, caller != NONE),
            decode_texts(module, every),
            decode_texts(how, pa.array(["hierarchy", "python", "forward"])),
        ],
        schema=OP_CALLERS,
    )


def launch_callers(launches: pa.Table, python_calls: pa.Table) -> pa.Table:
    """Return the innermost Python call round each call of the runtime, and its nn.Modules."""
    threads = Threads()
    calls = nest_rows(python_calls, threads)
    caller = calls.around(threads.number_threads(launches), read_numbers(launches["start_ns"]))
    path, paths = module_paths(python_calls, calls)
    module = take_or(path, caller)
    return pa.table(
        [build_numbers(caller, INT64, caller != NONE), decode_texts(module, paths)],
        schema=LAUNCH_CALLERS,
    )


def python_links(python_calls: pa.Table) -> pa.Table:
    """Return the caller, depth, thread and module of each Python call."""
    calls = nest_rows(python_calls, Threads())
    path, paths = module_paths(python_calls, calls)
    return pa.table(
        [
            build_numbers(calls.parent, INT64, calls.parent != NONE),
            build_numbers(calls.depth, INT32),
            build_numbers(calls.thread, INT32),
            decode_texts(path, paths),
        ],
        schema=PYTHON_LINKS,
    )


def module_paths(python_calls: pa.Table, calls: Nested) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the path of nn.Modules that each Python call is inside of (itself too), as codes.

    Level by level of the call tree: a call has its caller's path, and a module adds its name.
    """
    codes, names = codes_of(python_calls["name"])
    labels = names.to_pylist()
    is_module = np.array([n.startswith(MODULE) for n in labels] + [False], bool)[codes]
    path = fill_none(len(codes) + 1)  # the last one for no caller
    path_codes: dict[tuple[int, int], int] = {}
    paths: list[str] = []
    depth = calls.depth
    order = order_by(depth)
    levels = np.searchsorted(depth[order], np.arange(int(depth.max(initial=-1)) + 2))
    for low, high in zip(levels[:-1].tolist(), levels[1:].tolist(), strict=True):
        rows = order[low:high]
        path[rows] = path[calls.parent[rows]]
        modules = rows[is_module[rows]]
        distinct = Groups.by_keys(
            np.stack([path[modules], codes[modules].astype(np.int64)], axis=1)
        )
        level_codes = []
        for above, name in distinct.keys.tolist():  # a distinct module each
            if (above, name) not in path_codes:
                path_codes[above, name] = len(paths)
                own = labels[name].removeprefix(MODULE)
                paths.append(f"{paths[above]}.{own}" if above != NONE else own)
            level_codes.append(path_codes[above, name])
        path[modules] = np.array(level_codes, np.int64)[distinct.group_ids]
    return path[:-1], pa.array(paths, STRING)


def _from_forward(module: NDArray[np.int64], op_links: pa.Table) -> NDArray[np.bool_]:
    """Operators of the backward pass take their forward operator's module."""
    forward: Rows = read_numbers(op_links["forward_row"], NONE)
    wants = mark_valid(op_links["forward_row"]) & (module == NONE)
    module[wants] = module[forward[wants]]
    return np.asarray(wants & (module != NONE))
