"""Kernels that somebody describes: what comes back, and what is refused row by row."""

import csv
from pathlib import Path

import pytest

import htk
from htk.base.errors import UsageError
from htk.faces.cli.main import run_command_line
from htk.physics.hardware import gpu
from htk.verdicts.claims.kernel_question import time_kernels

PRODUCT = {"op": "matmul", "gpu": "h100", "m": "4096", "n": "4096", "k": "4096"}
ATTENTION = {
    "op": "attention_decode", "gpu": "h200", "batch": "64", "seq": "4096", "heads": "32",
    "kv_heads": "8", "head_dim": "128",
}  # fmt: skip


def test_a_measured_product_takes_what_its_libraries_took() -> None:
    """TensorRT-LLM 1.3.0rc20 took 174.3 µs, SGLang 0.5.14 178.5, vLLM 0.24.0 166.0."""
    (row,) = time_kernels([PRODUCT])
    assert row["basis"] == "measured"
    assert row["expected_ns"] == pytest.approx(174_285, rel=0.01)
    assert row["best_ns"] == pytest.approx(166_026, rel=0.03)
    assert row["lo90_ns"] < row["expected_ns"] < row["hi90_ns"]


def test_decoding_reads_the_cache_at_most_at_the_memory_s_rate() -> None:
    wide, narrow = time_kernels([ATTENTION, ATTENTION | {"precision": "fp8"}])
    cache = 2 * 64 * 4096 * 8 * 128 * 2
    assert wide["best_ns"] > cache / gpu("h200").memory_gbps
    assert wide["expected_ns"] < 1.5 * cache / gpu("h200").memory_gbps
    assert narrow["expected_ns"] < 0.75 * wide["expected_ns"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"m": "0"}, "m 0: a whole number from 1 was expected"),
        ({"m": "-4"}, "m -4: a whole number from 1 was expected"),
        ({"m": "nan"}, "m nan: a whole number from 1 was expected"),
        ({"m": "many"}, "m 'many': a number was expected"),
        ({"m": ""}, "matmul needs m"),
        ({"m": "1e10"}, "m 1e10: larger than any kernel's"),
        ({"m": "1e9", "n": "1e9"}, "larger than any kernel: it would take hours"),
        ({"gpu": "h1000"}, "no GPU 'h1000' in the catalogue"),
        ({"gpu": ""}, "no gpu"),
        ({"gpu": "a100-80gb", "precision": "fp8"}, "a100-80gb has no products in fp8"),
        ({"op": "conv"}, "op 'conv': one of matmul, "),
        ({"precision": "fp7"}, "precision 'fp7': one of bf16, "),
        ({"op": "all_reduce", "elements": "64", "ranks": "1"}, "ranks: 2 to 8 of one node"),
        ({"op": "experts", "experts": "4", "topk": "8"}, "topk: more than there are experts"),
        (ATTENTION | {"kv_heads": "64"}, "kv_heads: more than there are heads"),
    ],
)
def test_a_row_that_cannot_be_answered_says_why_and_costs_no_other(
    change: dict[str, str], reason: str
) -> None:
    first, second = time_kernels([PRODUCT | change, PRODUCT])
    assert first["basis"].startswith(reason)
    assert [first[name] for name in ("expected_ns", "lo90_ns", "hi90_ns", "best_ns")] == [None] * 4
    assert second["basis"] == "measured"


def test_a_file_comes_back_with_its_own_columns(tmp_path: Path) -> None:
    given = tmp_path / "kernels.csv"
    given.write_text("id,op,m,n,k,note\na,matmul,16,4096,4096,x\nb,matmul,16,4096\n")
    out = tmp_path / "out.csv"
    assert run_command_line(["kernel-time", str(given), "--gpu", "h100", "-o", str(out)]) == 0
    with out.open() as file:
        first, second = csv.DictReader(file)
    assert list(first)[:6] == ["id", "op", "m", "n", "k", "note"]
    assert list(first)[-5:] == ["expected_ns", "lo90_ns", "hi90_ns", "best_ns", "basis"]
    assert (first["id"], first["note"]) == ("a", "x")
    assert int(first["expected_ns"]) > 0
    assert (second["id"], second["expected_ns"], second["basis"]) == ("b", "", "matmul needs k")


@pytest.mark.parametrize(
    ("text", "said"), [("", "no column op"), ("m,n\n1,2\n", "no column op"), ("op,op\n", "two")]
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    given = tmp_path / "kernels.csv"
    given.write_text(text)
    with pytest.raises(UsageError, match=said):
        htk.kernel_time(given)
    with pytest.raises(UsageError, match="no CSV file"):
        htk.kernel_time(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="unknown width"):
        htk.kernel_time(op="matmul", width=4)


def test_one_kernel_that_cannot_be_answered_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["kernel-time", "--gpu", "h100", "--op", "matmul", "--m", "1"]) != 0
    assert capsys.readouterr().err.splitlines() == ["htk: kernel-time: matmul needs n"]
