"""What would have recorded a table that a trace lacks."""

_HINTS = {
    "kernels": "GPU activities: profile with ProfilerActivity.CUDA (or the vendor's) on",
    "cpu_ops": "CPU operators: profile with ProfilerActivity.CPU on",
    "launches": "runtime calls: profile with ProfilerActivity.CPU and .CUDA on",
    "annotations": "user ranges: wrap code in torch.profiler.record_function and call prof.step()",
    "step_windows": "profiler steps: call prof.step() once for each iteration",
    "rank_windows": "GPU activities: profile with ProfilerActivity.CUDA (or the vendor's) on",
    "memory": "memory events: profile with profile_memory=True",
    "python_calls": "Python calls: profile with with_stack=True",
    "syncs": "synchronisation events: experimental_config with enable_cuda_sync_events=True",
    "collectives": "collectives: a job of several ranks, or NCCL's own records",
    "comm_counts": "counts of NCCL's RAS service: the output of `ncclras -f json` in a file",
    "bench_points": "benchmark points: an output file of nccl-tests",
    "flows": "flow events (ac2g, fwdbwd)",
    "counters": "counter events",
    "job_operations": "operation-level rows of all ranks: record with capture(operations=True)",
}


def hint(name: str) -> str:
    """Return what would record a table."""
    return _HINTS.get(name, f"a source that fills {name}")
