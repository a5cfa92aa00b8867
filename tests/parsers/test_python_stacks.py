"""Stacks of py-spy, pystack and faulthandler, and tracebacks."""

import json

import pytest

from htk.base.core.parser import Head
from htk.base.errors import MalformedTrace
from htk.parsers import python_stacks
from tests.parsers.log_files import parsed, rows, sample, values


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


STACK = ("source", "rank", "process", "thread", "thread_name", "state", "offset", "frames")


def test_every_field_of_what_py_spy_prints() -> None:
    """Two processes one behind the other; a frame may have no line, and values are not read."""
    text = (
        "Process 31: python a.py\n"
        "Python v3.11\n"
        'Thread 0x7F (idle): "main"\n'
        "    f (a.py:3)\n"
        "        Arguments:\n"
        "    <built-in> (b)\n"
        "Thread 12 (active)\n"
        "    g (c d.py:4)\n"
        "Process 32: python b.py\n"
        'Thread 13 (active+gil): "io"\n'
        "    h (e.py:5)\n"
    )
    log = parsed(python_stacks, text, "rank7.txt")
    spy = "python_stacks"
    assert [values(row, *STACK) for row in rows(log, "python_stacks")] == [
        (
            spy,
            7,
            "31",
            "0x7F",
            "main",
            "idle",
            text.index("Thread 0x"),
            "f (a.py:3)\n<built-in> (b)",
        ),
        (spy, 7, "31", "12", None, "active", text.index("Thread 12"), "g (c d.py:4)"),
        (spy, 7, "32", "13", "io", "active+gil", text.index("Thread 13"), "h (e.py:5)"),
    ]


def test_every_field_of_what_faulthandler_prints() -> None:
    """The error belongs to the current thread alone; a line that was not known is `???`."""
    text = (
        "Fatal Python error: Aborted\n\n"
        "Thread 0x1a [loader] (most recent call first):\n"
        '  File "a.py", line 3 in f\n'
        '  File "b.py", line ??? in g\n'
        "Current thread 0x2b (most recent call first):\n"
        '  File "c.py", line 5 in h\n'
        "  <no Python frame>\n"
        '  File "d.py", line 6 in i\n'
    )
    log = parsed(python_stacks, text, "x.txt")
    assert [values(row, *STACK[1:6], "frames") for row in rows(log, "python_stacks")] == [
        (None, None, "0x1a", "loader", None, "f (a.py:3)\ng (b.py:???)"),
        (None, None, "0x2b", None, "Aborted", "h (c.py:5)"),
    ]
    quiet = parsed(python_stacks, text[text.index("Thread") :], "x.txt")
    assert [row["state"] for row in rows(quiet, "python_stacks")] == [None, "current"]


def test_tracebacks_are_innermost_first_and_need_a_frame_and_an_exception() -> None:
    first = (
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "a.py", line 3, in f\n'
        "[rank3]:     g()\n"
        '[rank3]:   File "b.py", line 4, in g\n'
        "[rank3]: ValueError: no such\n"
    )
    unfinished = (
        'Traceback (most recent call last):\n  File "c.py", line 5, in h\nand so on, it says\n'
    )
    empty = "Traceback (most recent call last):\nKeyError: 3\n"
    log = parsed(python_stacks, first + unfinished + empty, "x.txt")
    (row,) = rows(log, "python_stacks")
    assert values(row, "source", "rank", "state", "frames", "offset") == (
        "traceback", 3, "ValueError: no such", "g (b.py:4)\nf (a.py:3)", 0,
    )  # fmt: skip


def test_py_spy_as_json_says_what_it_prints() -> None:
    frames = [
        {"name": "all_reduce", "filename": "/x/c10d.py", "short_filename": "c10d.py", "line": 28},
        {"name": "step", "filename": "/x/train.py", "short_filename": None, "line": 8},
    ]
    thread = {"pid": 42, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 43}
    thread["process_info"] = {"pid": 42, "command_line": "python train.py --local-rank=3"}
    text = json.dumps([{**thread, "active": True, "owns_gil": False, "frames": frames}])
    log = parsed(python_stacks, text, "rank5.json")
    assert [values(row, *STACK[1:6], "frames") for row in rows(log, "python_stacks")] == [
        (
            5,
            "42 (local rank 3)",
            "43",
            "MainThread",
            "active",
            "all_reduce (c10d.py:28)\nstep (/x/train.py:8)",
        )
    ]
    assert python_stacks.sniff(Head("rank5.json", text.encode()))
    with pytest.raises(MalformedTrace):
        parsed(python_stacks, text[:-9], "rank5.json")


def test_pystack_is_innermost_first_and_its_frames_of_c_are_not_read() -> None:
    text = (
        "Traceback for thread 42 (python) [Has the GIL] (most recent call last):\n"
        '    (C) File "???", line 0, in _start (python3.11)\n'
        '    (Python) File "train.py", line 8, in step\n'
        "        dist.all_reduce(loss)\n"
        '    (Python) File "c10d.py", line 28, in all_reduce\n'
    )
    log = parsed(python_stacks, text, "rank5.txt")
    assert [values(row, *STACK[1:6], "frames") for row in rows(log, "python_stacks")] == [
        (5, None, "42", "python", "active+gil", "all_reduce (c10d.py:28)\nstep (train.py:8)")
    ]
    assert python_stacks.sniff(Head("rank5.txt", text.encode()))


def test_gdb_prints_frames_of_c() -> None:
    text = (
        "Attaching to process 42\n"
        'Thread 2 (Thread 0x7f1d1bfff700 (LWP 50) "cuda-EvtHandlr"):\n'
        "#0  0x00007f1d2c8f0a3f in poll () from /lib64/libc.so.6\n"
        "#1  0x00007f1c8a0d2f9e in ?? () from /usr/lib64/libcuda.so.1\n"
        "\n"
        "Thread 1 (Thread 0x7f1d2cfe5740 (LWP 42)):\n"
        "#0  0x00007f1d in c10d::ProcessGroupNCCL::WorkNCCL::wait(long, std::ratio<1l> >) ()"
        " from /opt/torch/lib/libtorch_cuda.so\n"
        "#1  main (argc=3, argv=0x7ffd) at ./python.c:15\n"
        "#2  0x0000564ab in _start ()\n"
    )
    log = parsed(python_stacks, text, "rank5.txt")
    assert [values(row, *STACK[1:5], "frames") for row in rows(log, "python_stacks")] == [
        (5, "42", "2", "cuda-EvtHandlr", "poll (libc.so.6)\n?? (libcuda.so.1)"),
        (5, "42", "1", None, "c10d::ProcessGroupNCCL::WorkNCCL::wait (libtorch_cuda.so)\n"
         "main (./python.c:15)\n_start (??)"),
    ]  # fmt: skip
    assert python_stacks.sniff(Head("rank5.txt", text.encode()))
