"""Calls of the runtime and what runs on the GPU, as CUPTI and ROCm's profilers name them."""

import json

from htk.recording.simulate.config import Config
from htk.recording.simulate.instructions import Activity, Do

# Names and numbers of calls; the program speaks of CUDA's.
_CUDA = {
    "cudaLaunchKernel": ("cudaLaunchKernel", 211),
    "cudaLaunchKernelExC": ("cudaLaunchKernelExC", 430),
    "cudaMemcpyAsync": ("cudaMemcpyAsync", 41),
    "cudaGraphLaunch": ("cudaGraphLaunch", 311),
    Do.RECORD: ("cudaEventRecord", 135),
    Do.WAIT: ("cudaStreamWaitEvent", 147),
    Do.SYNC: ("cudaEventSynchronize", 137),
    "cudaMalloc": ("cudaMalloc", 20),
    "cudaFree": ("cudaFree", 22),
    "cudaHostAlloc": ("cudaHostAlloc", 27),
    "cudaStreamCreateWithPriority": ("cudaStreamCreateWithPriority", 211),
    "cuLibraryLoadData": ("cuLibraryLoadData", 655),
}
_HIP = {
    "cudaLaunchKernel": ("hipLaunchKernel", 107),
    "cudaLaunchKernelExC": ("hipExtLaunchKernel", 62),
    "cudaMemcpyAsync": ("hipMemcpyAsync", 134),
    "cudaGraphLaunch": ("hipGraphLaunch", 215),
    Do.RECORD: ("hipEventRecord", 59),
    Do.WAIT: ("hipStreamWaitEvent", 200),
    Do.SYNC: ("hipEventSynchronize", 60),
    "cudaMalloc": ("hipMalloc", 114),
    "cudaFree": ("hipFree", 70),
    "cudaHostAlloc": ("hipHostMalloc", 97),
    "cudaStreamCreateWithPriority": ("hipStreamCreateWithPriority", 198),
    "cuLibraryLoadData": ("hipModuleLoadData", 147),
}
_REGISTERS, _SHARED, _WARPS, _BLOCKS = 65536, 167936, 64, 32  # of a multiprocessor


class RuntimeCalls:
    """Names and arguments for one vendor's GPU."""

    def __init__(self, config: Config, device: int) -> None:
        self.amd = config.device.vendor == "amd"
        self._units = config.device.units
        self._place = f'"device": {device}'
        self._names = _HIP if self.amd else _CUDA

    def call(
        self, what: str | Do, external: int, number: int, launched: Activity | None = None
    ) -> tuple[str, str]:
        """Name and arguments of a call."""
        name, callback = self._names[what]
        link = f'"External id": {external}, ' if external else ""
        if not self.amd:
            return name, f'{link}"cbid": {callback}, "correlation": {number}'
        args = f'{link}"cid": {callback}, "correlation": {number}'
        if launched and launched.category == "kernel" and not launched.node:
            if launched.name.startswith("Cijk"):  # libraries bring kernels of their own
                name = "hipExtModuleLaunchKernel"
                args = args.replace("107", "65", 1)
            args += f', "kernel": {json.dumps(launched.name)}, {_spell_size(launched)}'
        return name, args

    def activity(self, what: Activity, external: int, number: int, ns: int) -> str:
        link = f'"External id": {external}, ' if external else ""
        location = f'{self._place}, "context": 1, "stream": {what.stream}, "correlation": {number}'
        if self.amd:
            kind = what.name.split()[1] if what.category == "gpu_memcpy" else "Dispatch Kernel"
            location = f'{self._place}, "stream": {what.stream}, "correlation": {number}'
            location += f', "kind": "{kind}"'
        if what.category != "kernel":
            rate = f'"bytes": {what.moved}, "memory bandwidth (GB/s)": {what.moved / ns:.6g}'
            return f"{link}{location}, {rate}"
        if self.amd:
            return link + location
        return f'{link}"queued": 0, {location}, {self._describe_kernel(what)}'

    def _describe_kernel(self, what: Activity) -> str:
        threads = what.block[0] * what.block[1] * what.block[2]
        blocks = what.grid[0] * what.grid[1] * what.grid[2] / self._units
        warps = blocks * threads / 32
        each = -(-threads // 32)
        fitting = min(
            _BLOCKS,
            _WARPS // each,
            _REGISTERS // max(1, what.registers * 32 * each),
            _SHARED // max(1, what.shared_bytes),
        )
        occupancy = min(100, int(0.5 + 100 * min(blocks, max(1, fitting)) * each / _WARPS))
        return (
            f'"registers per thread": {what.registers}, "shared memory": {what.shared_bytes},'
            f' "blocks per SM": {blocks:.6f}, "warps per SM": {warps:.6f},'
            f' "grid": {list(what.grid)}, "block": {list(what.block)},'
            f' "est. achieved occupancy %": {occupancy},'
            f' "graph id": {what.graph}, "graph node id": {what.node},'
            f' "priority": 0, "channel": {what.stream + 1}, "channel_type": 1'
        )


def _spell_size(what: Activity) -> str:
    return (
        f'"grid": {list(what.grid)}, "block": {list(what.block)},'
        f' "shared memory": {what.shared_bytes}'
    )
