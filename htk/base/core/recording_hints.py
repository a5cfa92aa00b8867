"""What a trace lacks, in words, and how the tool that recorded it would record it."""

from collections.abc import Iterable

_CONTENTS = {  # table -> what it holds
    "kernels": "GPU activities",
    "rank_windows": "GPU activities",
    "cpu_ops": "CPU operators",
    "launches": "runtime calls",
    "annotations": "user ranges",
    "step_windows": "steps",
    "step_window_times": "steps",
    "memory": "memory events",
    "python_calls": "Python calls",
    "syncs": "synchronisation events",
    "collectives": "collectives",
    "comm_counts": "counts of NCCL's RAS service",
    "bench_points": "benchmark points",
    "flows": "flow events (ac2g, fwdbwd)",
    "counters": "counter events",
    "shapes": "shapes of operators",
    "modules": "modules of operators",
    "job_layouts": "the layout of a job",
    "job_operations": "operation-level rows",
    "server_steps": "steps",
    "execution_nodes": "nodes of an execution trace",
    "kernel_stacks": "stacks of kernels beside the trace",
    "link_metrics": "counters of links",
    "proxy_steps": "steps of NCCL's proxies",
    "comm_notes": "notes of logs",
    "link_samples": "counters of links",
    "python_stacks": "Python stacks",
}
_TORCH = {
    "kernels": "profile with ProfilerActivity.CUDA (or the vendor's) on",
    "cpu_ops": "profile with ProfilerActivity.CPU on",
    "launches": "profile with ProfilerActivity.CPU and .CUDA on",
    "annotations": "wrap code in torch.profiler.record_function and call prof.step()",
    "step_windows": "call prof.step() once for each iteration",
    "server_steps": "a server has none; ask iteration-times of its iterations",
    "memory": "profile with profile_memory=True",
    "python_calls": "profile with with_stack=True",
    "shapes": "profile with record_shapes=True",
    "modules": "profile with with_modules=True or with_stack=True",
    "syncs": "profile with an experimental_config that has enable_cuda_sync_events=True",
    "collectives": "they come with a job of several ranks, or with NCCL's own records",
    "comm_counts": "save the output of `ncclras -f json` in a file",
    "bench_points": "save the output of nccl-tests in a file",
    "job_operations": "record all ranks with htk.capture(operations=True)",
    "execution_nodes": "run torch.profiler.ExecutionTraceObserver beside the profiler",
    "link_metrics": "save what dcgm-exporter or node_exporter serve beside the trace",
    "proxy_steps": "run with NCCL's example profiler plugin, NCCL_PROFILE_EVENT_MASK=94",
}
_ONLY_TORCH = dict.fromkeys(
    ("memory", "python_calls", "shapes", "modules"), "only torch.profiler records them"
)
_NSIGHT = _ONLY_TORCH | {
    "kernels": "record with nsys profile --trace=cuda,nvtx",
    "launches": "record with nsys profile --trace=cuda,nvtx",
    "cpu_ops": "run the steps under torch.autograd.profiler.emit_nvtx(record_shapes=True)",
    "shapes": "run the steps under torch.autograd.profiler.emit_nvtx(record_shapes=True)",
    "annotations": "name phases by torch.cuda.nvtx.range_push and range_pop",
    "step_windows": 'open a range for each iteration: torch.cuda.nvtx.range_push(f"step {i}")',
}
_ROCPROF = _ONLY_TORCH | {
    "kernels": "record with rocprofv3 --runtime-trace",
    "launches": "record with rocprofv3 --runtime-trace",
    "cpu_ops": "only torch.profiler records them",
    "annotations": "record ROCTx ranges around phases with rocprofv3 --marker-trace",
    "step_windows": 'record a ROCTx range "step N" an iteration with rocprofv3 --marker-trace',
    "collectives": "record a job of several ranks with rocprofv3 --rccl-trace",
}
_XPLANE = _ONLY_TORCH | {
    "kernels": "run jax.profiler.trace around work on a GPU or TPU",
    "annotations": "put jax.profiler.StepTraceAnnotation around iterations",
    "python_calls": "run jax.profiler.trace with its Python tracer on",
    "step_windows": 'put jax.profiler.StepTraceAnnotation("train", step_num=i) around iterations',
    "collectives": "they come with computations on several devices",
}
NO_TIMES = "an execution trace has no times; put it beside the profiler's trace of its run"
_ASCEND_TABLES = dict.fromkeys(
    ("launches", "cpu_ops", "memory", "python_calls", "shapes", "modules", "syncs"),
    "Ascend's tables hold nothing of the host: open the trace_view.json of their folder",
)
_EXECUTION_TRACE = dict.fromkeys(_TORCH, NO_TIMES)
_PROMETHEUS = {
    "collectives": "these files hold means by size: `htk comm-model` fits them, and Inspector's"
    " JSON (without NCCL_INSPECTOR_PROM_DUMP) holds each call",
}
_BY_FORMAT = {
    "ascend_tables": _ASCEND_TABLES,
    "execution_trace": _EXECUTION_TRACE,
    "inspector_prometheus": _PROMETHEUS,
    "nsight": _NSIGHT,
    "rocpd": _ROCPROF,
    "rocprof_json": _ROCPROF,
    "rocprof_perfetto": _ROCPROF,
    "xplane": _XPLANE,
}


def describe_contents(table: str) -> str:
    """Return what a table holds, in the plural."""
    return _CONTENTS.get(table, table.replace("_", " "))


def find_recipe(table: str, formats: Iterable[str] = ()) -> str:
    """Return how to record what a table holds, for recordings of these formats, if known."""
    key = "kernels" if table == "rank_windows" else table
    recipes = {_BY_FORMAT.get(name, _TORCH).get(key, "") for name in formats} or {""}
    return (recipes.pop() if len(recipes) == 1 else "") or _TORCH.get(key, "")


def describe_recording(table: str, formats: Iterable[str] = ()) -> str:
    """Return what a table holds and how to record it."""
    return ": ".join(filter(None, (describe_contents(table), find_recipe(table, formats))))
