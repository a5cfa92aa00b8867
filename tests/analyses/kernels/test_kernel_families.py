"""What kinds of kernels the GPU runs, by hand."""

from htk.analyses.kernels.kernel_families import kernel_families
from tests.tables import make

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"


def test_by_hand() -> None:
    rows = [
        (0, GEMM, "gemm", "compute", 60),
        (0, "volta_sgemm_128x32_nn", "gemm", "compute", 20),
        (0, "micro_sdpa", "attention", "compute", 10),
        (1, "Memset (Device)", "set", "memory", 10),
    ]
    kernels = [
        {"rank": r, "name": n, "family": f, "kind": k, "start_ns": 5, "end_ns": 5 + d}
        | {"activity": "set" if f == "set" else "kernel"}
        for r, n, f, k, d in rows
    ]
    tables = make("kernels", kernels), make("kernel_links", [{}] * 4)
    gemm, attention, sets = kernel_families(*tables).to_pylist()
    assert (gemm["family"], gemm["distinct_kernels"], gemm["count"], gemm["total_ns"]) == (
        "gemm",
        2,
        2,
        80,
    )
    assert (gemm["tensor_core_ns"], gemm["no_tensor_core_ns"]) == (60, 20)
    assert (gemm["tensor_core_pct"], gemm["kernel_time_pct"]) == (75, 80)
    assert (attention["tensor_core_unknown_ns"], attention["tensor_core_pct"]) == (10, None)
    assert (sets["family"], sets["tensor_core_pct"]) == ("set", None)
    per_rank = kernel_families(*tables, per="rank").to_pylist()
    assert [(r["rank"], r["kernel_time_pct"]) for r in per_rank][-1] == (1, 100)


def test_no_kernels() -> None:
    assert kernel_families(make("kernels", []), make("kernel_links", [])).num_rows == 0
