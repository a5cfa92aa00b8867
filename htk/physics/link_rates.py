"""How fast a GPU's links to its neighbours are, one way, by the name that the driver gives it.

Vendor data sheets; GB/s of 1e9 bytes, all links of a GPU together, one direction.
"""

import re

from htk.physics.detected import detect_gpu

# GPUs that the catalogue has no entry for; the first pattern found in the name decides.
_OTHERS: tuple[tuple[str, float], ...] = (
    (r"GB300|B300|B100", 900.0),  # NVLink 5: 18 links of 50
    (r"H800|A800", 200.0),
    (r"H100 PCIe", 300.0),  # by bridge; without one it is PCIe 5
    (r"GH200|H100|H20\b", 450.0),  # NVLink 4: 18 links of 25
    (r"A100", 300.0),  # NVLink 3: 12 links of 25
    (r"V100", 150.0),  # NVLink 2: 6 links of 25
    (r"MI308X|MI300A", 448.0),  # 7 links of 64
    (r"MI350X", 537.6),  # 7 links of 76.8
    (r"MI250|MI210", 150.0),  # 3 links of 50
    (r"L40|L4\b|A40|A10\b|RTX|T4", 32.0),  # PCIe 4 x16
)


def scale_up_gbps(device_name: str | None) -> float | None:
    """Return one-way rate of a GPU's links within its node; None: not known."""
    if not device_name:
        return None
    gpu = detect_gpu(device_name)
    if gpu:
        return gpu.scale_up_gbps
    return next((rate for pattern, rate in _OTHERS if re.search(pattern, device_name)), None)


def group_gbps(
    scale_up: float | None, nic: float | None, members_per_node: int, gpus_per_node: int
) -> float | None:
    """Link limit of a group that spans nodes: links, or its share of the node's adapters."""
    if nic is None or not gpus_per_node:
        return None
    share = nic * members_per_node / gpus_per_node
    return share if scale_up is None else min(scale_up, share)
