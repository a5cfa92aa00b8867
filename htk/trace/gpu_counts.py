"""How much GPU work was recorded, and how much of it is linked: what adds up over ranks."""

import pyarrow as pa

from htk.columns.arrow import numbers, truths, valid


def gpu_counts(kernels: pa.Table, kernel_links: pa.Table) -> dict[str, int]:
    """Return what of the GPU work adds up over ranks."""
    length = numbers(kernels["end_ns"]) - numbers(kernels["start_ns"])
    linked, carried = valid(kernel_links["launch_row"]), truths(kernel_links["carry_in"])
    lost = ~linked & ~carried
    return {
        "gpu_activities": kernels.num_rows,
        "gpu_ns": int(length.sum()),
        "linked_ns": int(length[linked].sum()),
        "carry_in_activities": int(carried.sum()),
        "carry_in_ns": int(length[carried].sum()),
        "unlinked_activities": int(lost.sum()),
        "unlinked_ns": int(length[lost].sum()),
        "ambiguous_activities": int(truths(kernel_links["ambiguous"]).sum()),
    }
