"""What a column that is not there was probably meant to be, by meaning: names that other tools and
earlier versions use for what is recorded here under another one."""

from collections.abc import Mapping
from difflib import get_close_matches

# A mistaken name, and names or expressions here, the likeliest first.
_LENGTH = ("duration_ns", "end_ns - start_ns", "total_ns", "device_total_ns", "cpu_total_ns")
_NAME = ("name", "op")
_STEP = ("step",)
_MEANT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("dur", "duration", "elapsed", "length", "time", "gpu_time"), _LENGTH),
    **dict.fromkeys(("cpu_time", "cuda_time", "device_time", "latency", "total_time"), _LENGTH),
    **dict.fromkeys(("begin", "start", "start_time", "t", "timestamp", "ts"), ("start_ns",)),
    **dict.fromkeys(("end", "end_time", "end_ts", "stop", "ts_end"), ("end_ns",)),
    **dict.fromkeys(("kernel", "kernel_name", "label", "op_name", "operator"), _NAME),
    **dict.fromkeys(("func", "function", "op", "s_name"), ("op", "function", "name")),
    **dict.fromkeys(("thread_id", "tid"), ("thread", "stream")),
    **dict.fromkeys(("pid", "process_id"), ("process", "device")),
    **dict.fromkeys(("device_id", "gpu", "gpu_id"), ("device",)),
    **dict.fromkeys(("cuda_stream", "stream_id", "streamid"), ("stream",)),
    **dict.fromkeys(("cat", "category", "kernel_type", "type"), ("kind", "activity", "category")),
    **dict.fromkeys(("iter", "iteration", "profiler_step", "step_id", "step_number"), _STEP),
    "step": _STEP,
    **dict.fromkeys(("corr", "correlation_id", "correlationid"), ("correlation",)),
    **dict.fromkeys(("bytes", "nbytes", "size"), ("size_bytes", "in_bytes", "out_bytes")),
    **dict.fromkeys(("msg_size", "message_size"), ("in_bytes", "out_bytes", "size_bytes")),
    **dict.fromkeys(("bandwidth", "bw"), ("busbw_gbps", "bandwidth_gbps")),
    **dict.fromkeys(("dims", "input_shapes", "shape", "shapes"), ("input_dims",)),
    **dict.fromkeys(("dtype", "dtypes", "input_dtypes"), ("input_types", "dtype")),
    **dict.fromkeys(("caller", "parent", "parent_id"), ("parent_name", "parent_row", "parent")),
    **dict.fromkeys(("module", "modules", "nn_module"), ("module", "module_hierarchy")),
    **dict.fromkeys(("group", "group_name", "pg", "process_group"), ("group",)),
    **dict.fromkeys(("collective", "collective_name"), ("type", "name")),
    **dict.fromkeys(("calls", "n", "num", "occurrences"), ("count",)),
    **dict.fromkeys(("global_rank", "process_rank", "rank_id"), ("rank",)),
    **dict.fromkeys(("mean", "avg", "average"), ("duration_ns_mean",)),
}
_MOST = 4


def list_candidates(
    name: str, columns: Mapping[str, tuple[str, ...]], others: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], dict[str, str]]:
    """Return what a mistaken column may stand for, of the relations that a query reads, and where
    else it is recorded: names by relation of `others`, where none of those read has it.

    `columns` and `others` map relations to their columns.
    """
    mistaken = name.rpartition(".")[2].lower()
    here = {column for names in columns.values() for column in names}
    meant = [word for word in _MEANT.get(mistaken, ()) if set(word.split(" - ")) <= here]
    near = get_close_matches(mistaken, sorted(here), 3)
    near += [column for column in sorted(here) if _is_beginning(column, mistaken)]
    words = list(dict.fromkeys([*meant, *near]))[:_MOST]
    elsewhere = {
        relation: word
        for relation, names in others.items()
        for word in [next((w for w in _MEANT.get(mistaken, (mistaken,)) if w in names), None)]
        if word is not None and word not in here
    }
    return words, elsewhere


def _is_beginning(column: str, mistaken: str) -> bool:
    """Return whether a column is the mistaken name with a unit or a statistic after it."""
    return column.startswith(f"{mistaken}_")
