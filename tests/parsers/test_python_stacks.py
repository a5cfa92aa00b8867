"""Stacks of py-spy and faulthandler, and tracebacks."""

from tests.parsers.log_files import rows, sample


def test_py_spy() -> None:
    main, loader = rows(sample("python_stacks/rank2.txt"), "python_stacks")
    assert (main["rank"], main["process"], main["thread_name"]) == (2, "4102", "MainThread")
    assert main["frames"].splitlines()[:3] == [
        "wait (threading.py:327)", "get (queue.py:180)", "next_batch (app/loader.py:88)",
    ]  # fmt: skip
    assert loader["state"] == "active+gil" and len(loader["frames"].splitlines()) == 2


def test_faulthandler() -> None:
    other, current = rows(sample("python_stacks/faulthandler_rank0.txt"), "python_stacks")
    assert (current["rank"], current["state"]) == (0, "Segmentation fault")
    assert current["frames"].splitlines()[0] == "fused (/app/kernels.py:19)"
    assert other["state"] is None and len(other["frames"].splitlines()) == 2


def test_faulthandler_as_recorded() -> None:
    stacks = rows(sample("python_stacks/faulthandler_timeout_rank1.txt"), "python_stacks")
    assert [s["frames"].splitlines()[0] for s in stacks] == [
        "worker (/app/fh.py:2)", "wait (/usr/lib/python3.11/threading.py:327)",
    ]  # fmt: skip
    assert {s["rank"] for s in stacks} == {1}


def test_torchrun_as_recorded() -> None:
    stacks = rows(sample("python_stacks/torchrun_exception.log"), "python_stacks")
    assert [(s["rank"], s["state"].partition(":")[0]) for s in stacks[:3]] == [
        (2, "ValueError"), (1, "RuntimeError"), (0, "RuntimeError"),
    ]  # fmt: skip
    assert stacks[0]["frames"].splitlines()[0] == "step (/app/job.py:8)"


def test_mixed_tracebacks() -> None:
    first, second = rows(sample("python_stacks/traceback.log"), "python_stacks")
    assert (first["rank"], second["rank"]) == (5, 0)
    assert first["state"].startswith("torch.OutOfMemoryError: CUDA out of memory")
    assert first["frames"].splitlines() == [
        "forward (/app/model.py:12)", "main (/app/train.py:97)", "<module> (/app/train.py:120)",
    ]  # fmt: skip
    assert second["frames"] == "step (/app/train.py:41)"
