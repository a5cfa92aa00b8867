"""Quantiles of iterations, by hand."""

import pytest

from htk.analyses.run.iteration_times import iteration_times
from tests.tables import answer_of, make


def served(*iterations: tuple[str, int, int]) -> dict:
    """Return tables of iterations: the name, and start and end on the GPU, each launched in its
    range of 10 ns."""
    named = [
        {"name": name, "on_gpu": False, "start_ns": 10 * k, "end_ns": 10 * k + 10}
        for k, (name, _, _) in enumerate(iterations)
    ]
    kernels = [{"start_ns": start, "end_ns": end} for _, start, end in iterations]
    links = [{"launch_start_ns": 10 * k + 1} for k in range(len(iterations))]
    return {
        "annotations": make("annotations", named),
        "kernels": make("kernels", kernels),
        "kernel_links": make("kernel_links", links),
    }


DECODE = "execute_{}_context_0(sq0sk0sqsq0sqsk0)_generation_{}(sq{}sk{}sqsq{}sqsk{})"
PREFILL = "execute_64_context_1(sq64sk64sqsq4096sqsk4096)_generation_0(sq0sk0sqsq0sqsk0)"


def decode(requests: int, context: int, computed: int) -> str:
    keys = requests * context
    return DECODE.format(computed, requests, requests, keys, requests, keys)


def test_rows_by_phase_batch_and_context() -> None:
    """30 of 32 tokens, then 20 of 24; each lasts 100 ns, the second of a row 20 later."""
    tables = served(
        (decode(30, 1000, 32), 1000, 1100),
        (decode(20, 900, 24), 1120, 1220),
        (decode(3, 5000, 4), 1230, 1250),
        (PREFILL, 1250, 1350),
    )
    few, many, prefill = answer_of(iteration_times, **tables)
    assert (many["batch_from"], many["batch_to"], many["iterations"]) == (20, 30, 2)
    assert (many["context_from"], many["context_to"]) == (900, 1000)
    assert (many["elapsed_ns_p50"], many["elapsed_ns_p99"]) == (110, 120), "99th of 100 and 120"
    assert many["gap_ns_p50"] == 20 and many["gap_pct"] == pytest.approx(100 * 20 / 220)
    assert many["padding_pct"] == pytest.approx(100 * 6 / 56)
    assert many["tokens_per_s"] == pytest.approx(50 / 220e-9)
    assert (few["batch_to"], few["context_to"], few["elapsed_ns_p50"]) == (3, 5000, 30)
    assert (prefill["phase"], prefill["batch_from"], prefill["gap_ns_p50"]) == ("prefill", 64, 0)
    assert prefill["padding_pct"] == 0


def test_one_row_for_a_phase() -> None:
    tables = served((decode(30, 1000, 32), 0, 100), (decode(3, 5000, 4), 100, 150))
    (row,) = answer_of(iteration_times, **tables, options={"by": "phase"})
    assert (row["iterations"], row["batch_from"], row["batch_to"]) == (2, 3, 30)
    assert row["elapsed_ns_p50"] == 75


def test_what_names_do_not_tell_is_empty() -> None:
    (row,) = answer_of(iteration_times, **served(("step[TARGET_VERIFY bs=4]", 0, 100)))
    assert (row["context_from"], row["padding_pct"], row["tokens_per_s"]) == (None, None, None)
    assert row["batch_from"] == 4


def test_drafted_tokens_are_computed_and_not_surely_given() -> None:
    """8 requests verify 4 tokens each, in a graph of 40; one of the four is given at least."""
    name = DECODE.format(40, 8, 32, 8000, 128, 32000)
    (row,) = answer_of(iteration_times, **served((name, 0, 100)))
    assert row["tokens_per_s"] == pytest.approx(8 / 100e-9)
    assert row["padding_pct"] == pytest.approx(100 * 8 / 40)


def test_what_sharing_a_model_costs() -> None:
    """Two ranks; experts take 100 and 50, then 60 and 60 ns; each iteration ends with 20 ns of
    communication, of which the half runs beside something computed."""
    experts = ((0, 0, 100), (0, 200, 60), (1, 0, 50), (1, 200, 60))
    name = decode(8, 100, 8)
    rows = {"annotations": [], "kernels": [], "kernel_links": []}
    for rank, begin, length in experts:
        rows["annotations"].append(
            {"rank": rank, "name": name, "on_gpu": False, "start_ns": begin, "end_ns": begin + 150}
        )
        end = begin + length
        for kind, family, start, stop in (
            ("compute", "moe", begin, end), ("comm", "communication", end, end + 20),
            ("compute", "gemm", end + 10, end + 20),
        ):  # fmt: skip
            common = {"rank": rank, "start_ns": start, "end_ns": stop}
            rows["kernels"].append(common | {"kind": kind, "family": family})
            rows["kernel_links"].append({"launch_start_ns": begin + 1})
    tables = {name: make(name, listed) for name, listed in rows.items()}
    (row,) = answer_of(iteration_times, **tables)
    assert row["expert_imbalance_pct"] == pytest.approx(100 * (160 / 135 - 1))
    elapsed = 120 + 160 + 70 + 210  # a second iteration lasts from the end of the first one
    assert row["exposed_comm_pct"] == pytest.approx(100 * 4 * 10 / elapsed)
    assert row["comm_wait_pct"] is None
