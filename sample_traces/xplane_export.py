"""Writes an XLA profile as jax.profiler does, of a program that is made up.

python sample_traces/xplane_export.py    # writes xplane/host.xplane.pb

One process drives two GPUs; two steps, each of a copy and two HLO operators a GPU: `fusion.1`,
whose range the host recorded, and `gemm.2`, which only its launches name. Times count from the
profile's start, in picoseconds within a line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BEGAN_NS = 1_771_000_000_000_000_000
LINE_NS = 500  # every line begins so much after the profile
GEMM = "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1.kd"
Row = tuple[str, int, int, Mapping[str, Any]]  # name, start and length in ns, facts


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


class Plane:
    """A plane that is being written: texts are numbered as they occur."""

    def __init__(self, name: str, **stats: Any) -> None:
        self.name, self.lines = name, b""
        self._events: dict[str, int] = {}
        self._facts: dict[str, int] = {}
        self._described: dict[str, bytes] = {}
        self._stats = b"".join(message(6, self._stat(k, v)) for k, v in stats.items())

    def describe(self, event: str, text: str, shown: str = "", **facts: Any) -> None:
        """Let an event have a long name beside that to be shown, and facts of all its times."""
        stats = b"".join(message(5, self._stat(k, v)) for k, v in facts.items())
        self._described[event] = message(2, text) + message(4, shown or event) + stats

    def line(self, name: str, rows: list[Row], identity: int = 0) -> None:
        data = number(1, identity) + message(2, name) + number(3, LINE_NS)
        for event, start, length, facts in rows:
            kind = self._events.setdefault(event, len(self._events) + 1)
            stats = b"".join(message(4, self._stat(k, v)) for k, v in facts.items())
            times = number(2, start * 1000) + (number(3, length * 1000) if length else b"")
            data += message(4, number(1, kind) + times + stats)
        self.lines += message(3, data)

    def _stat(self, name: str, value: Any) -> bytes:
        """Texts are referred to, as profiles do, but for names of devices."""
        key = number(1, self._facts.setdefault(name, len(self._facts) + 1))
        if isinstance(value, int):
            return key + number(4, value)
        if name == "device_vendor":
            return key + message(5, value)
        return key + number(7, self._facts.setdefault(value, len(self._facts) + 1))

    def bytes(self) -> bytes:
        def table(field: int, names: Mapping[str, int], described: Mapping[str, bytes]) -> bytes:
            entries = (
                number(1, k) + message(2, number(1, k) + described.get(name, message(2, name)))
                for name, k in names.items()
            )
            return b"".join(message(field, entry) for entry in entries)

        tables = table(4, self._events, self._described) + table(5, self._facts, {})
        return message(1, message(2, self.name) + self.lines + tables + self._stats)


def profile() -> bytes:
    planes = [Plane("/host:metadata")]
    host = Plane("/host:CPU")
    calls: dict[int, list[Row]] = {0: [], 1: []}
    ranges: dict[int, list[Row]] = {0: [], 1: []}
    for gpu in range(2):
        kernels: list[Row] = []
        copies: list[Row] = []
        for step in range(2):
            start, corr = 10_000 * step + 4_000 * gpu, 10 * (2 * step + gpu) + 1
            moved = {"memcpy_details": "kind_src:pinned kind_dst:device size:4096 dest:0 async:1"}
            calls[gpu].append(("hipMemcpyAsync", start + 100, 50, {"correlation_id": corr}))
            copies.append(("MemcpyH2D", start + 200, 400, {"correlation_id": corr} | moved))
            ranges[gpu].append(("fusion.1", start + 1_000, 800, {}))
            for k, (kernel, op) in enumerate(
                ((GEMM, "gemm.2"), (GEMM, "gemm.2"), ("fusion_1", "fusion.1"))
            ):
                named = {"hlo_op": op, "hlo_module": "jit_f", "correlation_id": corr + 1 + k}
                begin = start + (1_100 if op == "fusion.1" else 2_000 + 300 * k)
                calls[gpu].append(("hipModuleLaunchKernel", begin, 100, named))
                grid = " grid:8,2,1 block:256,1,1 private_mem:0 group_mem:0 occ_pct:0"
                length = 1_500 + 500 * gpu
                row = (kernel, begin + 900 * (k + 1), length, named | {"kernel_details": grid})
                kernels.append(row)
        plane = Plane(f"/device:GPU:{gpu}", device_vendor="AMD", core_count=304)
        plane.line(f"Stream #{7 + gpu}(Kernel)", kernels, 7 + gpu)
        plane.line(f"Stream #{9 + gpu}(MemcpyH2D)", copies, 9 + gpu)
        plane.line("XLA Ops", kernels)  # derived: not to be counted again
        planes.append(plane)
        host.line(f"Host Threads/{583 + gpu}", sorted(calls[gpu], key=lambda r: r[1]), 583 + gpu)
        host.line(f"py_xla_execute/{gpu}", ranges[gpu])
    host.line(
        "python",
        [("train", 10_000 * k, 9_000, {"step_num": k + 5}) for k in range(2)]
        + [("$model.py:7 forward", 20, 5_000, {}), ("ThreadpoolListener::StartRegion", 30, 0, {})],
    )
    began = Plane("Task Environment", profile_start_time=BEGAN_NS)
    other = Plane("/device:CUSTOM:Megascale Trace")
    other.line("Actions", [("send", 5, 5, {})])
    written = b"".join(p.bytes() for p in (*planes, host, began, other))
    return written + message(4, "node7")


if __name__ == "__main__":
    (HERE / "xplane").mkdir(exist_ok=True)
    (HERE / "xplane" / "host.xplane.pb").write_bytes(profile())
