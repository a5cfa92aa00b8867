"""A small recording of an inference server: one iteration that answers 32 requests, launched as a
graph, after a wait for the iteration before, which was not recorded."""

import json
from pathlib import Path
from typing import Any

LAYERS = 8
RANGE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32768sqsq32sqsk32768)"
# Of a layer: name and µs. Products of 16 bits, attention over pages, norms.
KERNELS = (
    ("ampere_bf16_s16816gemm_bf16_128x64_tn", 120.0), ("paged_attention_v2_kernel", 60.0),
    ("ampere_bf16_s16816gemm_bf16_64x64_tn", 80.0), ("fused_add_rms_norm_kernel", 10.0),
    ("ampere_bf16_s16816gemm_bf16_256x64_tn", 280.0), ("act_and_mul_kernel", 10.0),
    ("ampere_bf16_s16816gemm_bf16_128x128_tn", 150.0),
)  # fmt: skip
WAIT_US = 40_000.0
BUSY_US = LAYERS * sum(length for _, length in KERNELS)


def write_server(path: Path) -> Path:
    """Write the recording, and return its file."""
    events = [
        _event("user_annotation", RANGE, 0, WAIT_US + 400, 100, 1),
        _event("cuda_runtime", "cudaLaunchKernel", 10, 5, 100, 1, correlation=1),
        _event("kernel", "prepare_kernel", 20, 5, 0, 7, correlation=1, device=0, stream=7),
        _event("cuda_runtime", "cudaStreamSynchronize", 30, WAIT_US, 100, 1, correlation=2),
        _event("cuda_runtime", "cudaGraphLaunch", WAIT_US + 50, 200, 100, 1, correlation=3),
    ]
    begin = WAIT_US + 100
    for name, length in LAYERS * KERNELS:
        events.append(
            _event("kernel", name, begin, length, 0, 7, correlation=3, device=0, stream=7)
        )  # fmt: skip
        begin += length + 1
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}
    info = {"rank": 0, "world_size": 1, "backend": "nccl"}
    header = {"deviceProperties": [device], "distributedInfo": info, "baseTimeNanoseconds": 0}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**header, "traceEvents": events}))
    return path


def _event(
    cat: str, name: str, ts: float, dur: float, pid: int, tid: int, **args: Any
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid,
        "args": args,
    }  # fmt: skip
