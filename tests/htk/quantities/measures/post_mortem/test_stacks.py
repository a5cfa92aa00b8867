"""Where main threads stand, from stacks of several threads a process."""

from typing import Any

import pyarrow as pa

from htk.base.schema import TABLES
from htk.quantities.measures.post_mortem.finding import Finding
from htk.quantities.measures.post_mortem.stacks import outside_of_collectives, stacks_of

SCHEMA = TABLES["python_stacks"]
WAIT = "wait (threading.py:331)"
TRAIN = "step (/app/train.py:40)"
LOAD = "fetch (/app/data.py:7)"


def thread(rank: int | None, name: str | None, *frames: str, **other: Any) -> dict[str, Any]:
    row = dict.fromkeys(SCHEMA.names)
    named = {"rank": rank, "source": "python_stacks", "thread_name": name}
    return row | named | {"frames": "\n".join(frames)} | other


def stands(*threads: dict[str, Any], of: tuple[int, ...] = ()) -> list[tuple[Any, str]]:
    asked = [Finding("hang", of, None, None, "")] if of else []
    findings = stacks_of(pa.Table.from_pylist([*threads], schema=SCHEMA), asked)
    return [(finding.ranks, finding.words) for finding in findings]


def test_the_thread_called_main_is_asked_wherever_it_is_listed() -> None:
    """py-spy lists main threads first, others behind."""
    main, loader = thread(3, "MainThread", WAIT, TRAIN), thread(3, "loader", WAIT, LOAD)
    for threads in ((main, loader, loader), (loader, main, loader), (loader, loader, main)):
        assert stands(*threads) == [((3,), f"rank 3 stands in {TRAIN}.")]


def test_without_names_the_last_is_the_main_thread() -> None:
    """As faulthandler writes them."""
    threads = thread(3, None, WAIT, LOAD), thread(3, None, WAIT, TRAIN)
    assert stands(*threads) == [((3,), f"rank 3 stands in {TRAIN}.")]


def test_ranks_at_one_line_are_told_together_and_those_asked_for_first() -> None:
    at = [thread(r, "MainThread", LOAD if r == 5 else TRAIN) for r in (0, 1, 5, 6)]
    together = (0, 1, 6), f"ranks 0-1,6 stand in {TRAIN}."
    alone = (5,), f"rank 5 stands in {LOAD}."
    assert stands(*at, of=(5,)) == [alone, together]
    assert stands(*at, of=(6,)) == stands(*at) == [together, alone]


def test_processes_without_a_rank_are_called_by_their_number() -> None:
    at = [
        thread(None, "MainThread", TRAIN, host=host, process=process)
        for host, process in (("a", "11"), ("b", "11"), ("a", "12"))
    ]
    assert stands(*at) == [((), f"process 11, process 11, process 12 stand in {TRAIN}.")]


def test_the_innermost_line_that_is_of_no_library() -> None:
    frames = (
        "wait (threading.py:1)",
        "all_reduce (/env/lib/python3.11/site-packages/torch/distributed.py:2)",
        "backward (torch/autograd/graph.py:3)",
        "run (<frozen runpy>:4)",
        TRAIN,
        "main (/app/main.py:9)",
    )
    assert stands(thread(0, "MainThread", *frames)) == [((0,), f"rank 0 stands in {TRAIN}.")]
    library = stands(thread(0, "MainThread", *frames[:4]))
    assert library == [((0,), f"rank 0 stands in {frames[0]}.")], "where all is of libraries"


def test_of_several_dumps_it_is_said_for_how_long_a_rank_stood() -> None:
    second = 10**9
    stood = [thread(1, None, LOAD, time_ns=at * second) for at in (100, 120, 140)]
    went_on = [
        thread(2, None, frame, time_ns=at * second) for frame, at in ((LOAD, 100), (TRAIN, 140))
    ]
    assert stands(*stood, *went_on) == [
        ((1,), f"rank 1 stands in {LOAD}, still there after 40.0 s (3 dumps in a row)."),
        ((2,), f"rank 2 stands in {TRAIN}, where it was not in the dump before (2 dumps)."),
    ]


def test_threads_of_one_dump_are_stamped_line_by_line() -> None:
    """The launcher stamps each line: threads some milliseconds apart are one dump's."""
    threads = [
        thread(3, name, WAIT, frame, time_ns=10**18 + k * 10**6)
        for k, (name, frame) in enumerate((("MainThread", TRAIN), ("loader", LOAD)))
    ]
    assert stands(*threads) == [((3,), f"rank 3 stands in {TRAIN}.")]


def test_who_waits_in_a_collective_and_who_does_not() -> None:
    call = "all_reduce (/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:28)"
    waits, loads = thread(0, None, call, TRAIN), thread(1, None, LOAD)
    assert stands(waits) == [((0,), f"rank 0 stands in all_reduce, called at {TRAIN}.")]
    apart = outside_of_collectives(pa.Table.from_pylist([waits, loads], schema=SCHEMA))
    assert apart is not None and not apart.decided
    assert (apart.what, apart.ranks, apart.excluded) == ("missing_rank", (1,), ())
    for alone in (waits, loads):
        assert outside_of_collectives(pa.Table.from_pylist([alone], schema=SCHEMA)) is None


def test_a_wait_in_c_is_a_wait_in_a_collective() -> None:
    wait = "c10d::ProcessGroupNCCL::WorkNCCL::wait (libtorch_cuda.so)"
    stacks = [
        thread(0, None, "pthread_cond_timedwait (libpthread.so.0)", wait, "main (./python.c:15)"),
        thread(1, None, "poll (libc.so.6)", "fetch (./loader.cpp:7)"),
    ]
    assert stands(*stacks) == [
        ((0,), f"rank 0 stands in {wait}."),
        ((1,), "rank 1 stands in fetch (./loader.cpp:7)."),
    ]
    found = outside_of_collectives(pa.Table.from_pylist(stacks, schema=SCHEMA))
    assert found is not None
    assert found.ranks == (1,)
