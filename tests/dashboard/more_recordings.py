"""Recordings of what the simulated job lacks: experts, pipelines, servers, proxies, links."""

import shutil
from pathlib import Path
from typing import Any

from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.comm import proxied_job
from tests.kineto_file import Event, kernel, launch, of_rank, op, profiled, step, write

SHIPPED = Path(__file__).parents[2] / "htk/traces/sample"
_SMALL: dict[str, Any] = {
    "model": "tiny", "layers": 2, "hidden": 256, "heads": 4, "ffn": 512, "vocab": 1000, "nodes": 1,
    "micro_batch": 1, "seq": 256, "steps": 2, "seed": 2,
}  # fmt: skip
# A pipeline of two stages: what each runs, from when to when, in µs of a step.
_STAGES: tuple[tuple[tuple[str, int, int], ...], ...] = (
    (("forward", 100, 200), ("send", 200, 230), ("forward", 230, 330), ("send", 330, 360),
     ("recv", 400, 480), ("backward", 480, 600), ("recv", 640, 760), ("backward", 760, 880)),
    (("recv", 150, 230), ("forward", 230, 320), ("backward", 320, 460), ("send", 460, 480),
     ("recv", 340, 360), ("forward", 480, 580), ("backward", 580, 740), ("send", 740, 760)),
)  # fmt: skip


def write_recordings(folder: Path) -> None:
    """Write a folder for each kind of recording."""
    experts = {"gpus_per_node": 4, "strategy": "ddp", "experts": 8, "active_experts": 2}
    skewed = {"expert_parallel": 4, "expert_skew": 0.4}
    simulate_job(Config(**_SMALL, **experts, **skewed), folder / "experts")
    served = {"gpus_per_node": 1, "decode_requests": 8, "context": 128, "steps": 4}
    simulate_job(Config(**{**_SMALL, **served}), folder / "server")
    for name, fill in _MAKERS.items():
        (folder / name).mkdir()
        fill(folder / name)


def _metrics(folder: Path) -> None:
    measured = [
        profiled(name, 10 * number, fadd=100 * number)
        for number, name in enumerate(("add", "mul", "add"), 1)
    ]
    write(folder / "rank0.json", op("aten::add", 0, 3), launch(1, 1), *measured, **of_rank(0))


def _proxy(folder: Path) -> None:
    calls = proxied_job.job(seed=3)
    proxied_job.write_profiles(folder, calls)
    proxied_job.write_records(folder, calls)


def _pipeline(folder: Path) -> None:
    for rank, stage in enumerate(_STAGES):
        events: list[Event] = []
        for number in (0, 1):
            begin = 1000 * number
            events.append(step(number, begin, 1000))
            for what, start, end in stage:
                events += _activity(what, 1 - rank, begin + start, end - start, len(events))
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))


def _activity(what: str, peer: int, start: int, length: int, number: int) -> list[Event]:
    """Return a kernel and the call that launches it, of the pass or to the peer."""
    thread, name = {"forward": (1, "aten::mm")}.get(
        what, (2, "autograd::engine::evaluate_function: MmBackward0")
    )
    calls = [op(name, start - 8, 6, thread), launch(number, start - 6, 2, thread)]
    if what in ("forward", "backward"):
        return [*calls, kernel("gemm", start, length, number)]
    message = kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage)", start, length, number, 20)
    message["args"] |= {
        "Collective name": what, "dtype": "Half", "In msg nelems": 4096, "Out msg nelems": 4096,
        "Group size": 2, "Process Group Name": "pp", "Process Group Ranks": "[0, 1]",
        "Dst Rank" if what == "send" else "Src Rank": peer,
    }  # fmt: skip
    return [launch(number, start - 6, 2, 3), message]


def _links(folder: Path) -> None:
    """The shipped sample, beside counters of its host and of another, every 50 ms."""
    for name in ("rank0", "rank1"):
        shutil.copy(SHIPPED / f"{name}.pt.trace.json.gz", folder)
    windows = open_trace(folder, OpenOptions(cache=False)).tables["rank_windows"]
    begin = min(windows["start_ns"].to_pylist()) // 10**6
    lines, total = [], 0
    for k in range(6):
        time, total = begin + 50 * k, total + 10**8 * (1 + k % 3)
        for host, share in (("node-0", 2), ("node-1", 1)):
            lines += [
                f'node_infiniband_port_data_transmitted_bytes_total{{device="mlx5_0",port="1",'
                f'instance="{host}:9100"}} {share * total} {time}',
                f'node_network_transmit_bytes_total{{device="eth0",instance="{host}:9100"}}'
                f" {total // 1000} {time}",
            ]
        for gpu in (0, 1):
            lines.append(
                f'DCGM_FI_PROF_NVLINK_TX_BYTES{{gpu="{gpu}",Hostname="node-0"}}'
                f" {10**9 * (gpu + 1 + k)} {time}"
            )
    (folder / "nodes.prom").write_text("\n".join(lines) + "\n")


_MAKERS = {"proxy": _proxy, "pipeline": _pipeline, "links": _links, "metrics": _metrics}
