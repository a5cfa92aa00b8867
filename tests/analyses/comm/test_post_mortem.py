"""Post-mortems from logs, counters, stacks and several sources together."""

import json
import pickle
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.base.errors import MissingTable
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.comm.hanging_job import Step
from tests.analyses.comm.hanging_logs import (
    EIGHT,
    IB,
    OOM,
    RESULT,
    SAMPLES,
    SPY,
    call,
    causes,
    dumps,
    heard,
    init,
    loop,
    missing_five,
    post_mortem,
    ras,
    warn,
    watched,
)


def texts(found: Result, finding: str) -> str:
    return " ".join(r["text"] for r in found.to_pylist() if r["finding"] == finding)


# What a job's log says of a hang


def test_the_watchdog_of_all_ranks(tmp_path: Path) -> None:
    log = "".join(watched(rank, 78, 80) for rank in (0, 1, 2, 4, 5, 6, 7)) + heard(3, 77)
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [("missing_rank", "3")]
    assert found.coverage["exclude_ranks"] == "[3]" and found.coverage["decided"]
    assert found.to_pylist()[0]["seq"] == 78


def test_a_rank_without_a_line_is_not_forgotten(tmp_path: Path) -> None:
    """Rank 3 wrote nothing: its number lies between those that did."""
    log = "".join(watched(rank, 78) for rank in (0, 1, 2, 4))
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [("cannot_decide", "3")]
    assert "left neither a dump nor a line of the watchdog" in found.coverage["verdict"]


def test_the_last_rank_of_all_may_have_written_nothing(tmp_path: Path) -> None:
    """Without the size of the group nobody can say that all came; NCCL's log has it."""
    log = "".join(watched(rank, 78) for rank in range(7))
    open_one = post_mortem(tmp_path / "a", {"job.log": log})
    assert causes(open_one) == [("cannot_decide", "0-6")] and not open_one.coverage["decided"]
    inits = "".join(init(rank) for rank in range(7))
    told = post_mortem(tmp_path / "b", {"job.log": inits + log})
    assert causes(told) == [("cannot_decide", "7")]
    whole = inits + init(7) + log + watched(7, 78)
    assert causes(post_mortem(tmp_path / "c", {"job.log": whole})) == [("not_completed", "0-7")]


def test_sizes_that_the_watchdog_tells(tmp_path: Path) -> None:
    log = "".join(watched(r, 9, NumelIn=1000 if r == 2 else 1024) for r in range(4))
    log = log.replace("NumelIn=1000, NumelOut=1024", "NumelIn=1000, NumelOut=1000")
    assert causes(post_mortem(tmp_path, {"job.log": log})) == [("size_mismatch", "2")]


def test_types_that_the_watchdog_tells(tmp_path: Path) -> None:
    log = "".join(watched(r, 9, OpType="BROADCAST" if r == 1 else "ALLREDUCE") for r in range(4))
    assert causes(post_mortem(tmp_path, {"job.log": log})) == [("type_mismatch", "1")]


def test_a_message_whose_peer_is_not_told(tmp_path: Path) -> None:
    log = watched(0, 12, OpType="SEND", NumelIn=64, NumelOut=64)
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [("cannot_decide", "0")]
    assert "does not tell with whom" in found.coverage["verdict"]


def test_a_dump_is_believed_before_the_watchdog(tmp_path: Path) -> None:
    """The watchdog's lines complete the dumps: rank 5 left only a line."""
    files: dict[str, str | bytes] = dict(dumps(missing_five()))
    del files["comm_lib_trace_rank_5"]
    assert causes(post_mortem(tmp_path / "a", files)) == [("cannot_decide", "5")]
    group = "pg0-1-2-3-4-5-6-7x8"
    name = pickle.loads(files["comm_lib_trace_rank_0"])["entries"][0]["process_group"][0]  # type: ignore[arg-type]
    line = heard(5, 4).replace("PG GUID 0(default_pg)", f"PG GUID {name}(undefined)")
    found = post_mortem(tmp_path / "b", {**files, "rank5.log": line})
    assert causes(found) == [("missing_rank", "5")], group
    assert found.coverage["sources"] == ["flight_recorder", "watchdog"]


# What NCCL's log says


def test_a_rank_behind_in_a_log_alone_may_be_slow(tmp_path: Path) -> None:
    log = "".join(map(init, EIGHT))
    log += "".join(call(r) * (50 if r == 5 else 51) for r in EIGHT)
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [("missing_rank", "5")] and not found.coverage["decided"]
    assert "enqueued 50 all_reduce calls and others up to 51" in found.coverage["verdict"]
    assert "may only be slower" in found.coverage["verdict"]
    assert not found.coverage.get("exclude_ranks") and "ncclras" in texts(found, "to_decide")


def test_a_log_decides_what_dumps_leave_open(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = dict(dumps(missing_five()))
    del files["comm_lib_trace_rank_5"]
    log = "".join(map(init, EIGHT)) + "".join(call(r) * (4 if r == 5 else 5) for r in EIGHT)
    found = post_mortem(tmp_path, {**files, "nccl.log": log})
    assert causes(found) == [("missing_rank", "5")] and found.coverage["decided"]
    assert found.coverage["exclude_ranks"] == "[5]"
    assert found.to_pylist()[0]["source"] == "flight_recorder, nccl_debug"


def test_behind_in_one_communicator_since_it_waits_in_another(tmp_path: Path) -> None:
    """Rank 1 is behind in the world since it waits for rank 3 in its pair: rank 3 is the one."""
    log = "".join(init(r, 4) for r in range(4)) + "".join(init(r, 2, 0xD) for r in ())
    for place, rank in enumerate((1, 3)):  # ranks 0 and 1 of the pair
        log += init(rank, 2, 0xD).replace(f"rank {rank} nranks", f"rank {place} nranks")
    log += "".join(call(r, size=4) * (5 if r in (0, 2) else 4) for r in range(4))
    log += call(1, comm=0xD, size=2) * 3 + call(3, comm=0xD, size=2) * 2
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [("missing_rank", "3")]


@pytest.mark.parametrize(
    ("wrong", "expected", "words"),
    [
        (call(5, "AllGather"), "type_mismatch", "called all_gather"),
        (call(5, count=1000), "size_mismatch", "called all_reduce of 1,000"),
        (call(5).replace("datatype 7", "datatype 6"), "dtype_mismatch", "ncclFloat16"),
    ],
)
def test_calls_that_differ_in_a_log(tmp_path: Path, wrong: str, expected: str, words: str) -> None:
    log = "".join(map(init, EIGHT)) + "".join(map(call, EIGHT)) * 3
    log += "".join(wrong if r == 5 else call(r) for r in EIGHT) + "".join(map(call, EIGHT))
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [(expected, "5")] and found.coverage["decided"]
    assert "Collective number 4 of communicator 0xabc" in found.coverage["verdict"]
    assert words in found.coverage["verdict"]


def test_a_call_left_out_in_a_log(tmp_path: Path) -> None:
    program = [call(0, "AllReduce", n) for n in (16, 32, 64, 16, 32, 64)]
    log = "".join(map(init, EIGHT))
    for rank in EIGHT:
        own = [line.replace("node-a:4100:4200 [0]", f"node-a:{4100 + rank}:{4200 + rank} [{rank}]")
               .replace("comm 0xabc0", f"comm 0xabc{rank}") for line in program]  # fmt: skip
        log += "".join(own[:1] + own[2:] if rank == 3 else own)
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [("order_mismatch", "3")]


def test_infiniband(tmp_path: Path) -> None:
    log = "".join(map(init, EIGHT)) + "".join(map(call, EIGHT)) * 3 + warn(1, IB)
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [("network_error", "1")] and found.coverage["decided"]
    assert "10.0.0.2" in found.coverage["verdict"]
    assert "In 1 of 1 communicators all ranks" not in found.coverage["verdict"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IB.replace("status=12", "status=13"), "network_error"),
        ("NET/IB : mlx5_0:1 Got async event : port error", "network_error"),
        ("Cuda failure 'an illegal memory access was encountered'", "gpu_error"),
        ("Cuda failure 2 'out of memory'", "out_of_memory"),
        ("NET/IB : req 0/1 tag 0 peer 10.0.0.2<5> collective mismatch error, local size 8 remote "
         "size 4", "program_error"),
    ],
)  # fmt: skip
def test_warnings_that_mean_something(tmp_path: Path, text: str, expected: str) -> None:
    log = "".join(map(init, EIGHT)) + warn(6, text)
    assert causes(post_mortem(tmp_path, {"job.log": log})) == [(expected, "6")]


@pytest.mark.parametrize("text", ["Failed to open libibverbs.so[.1]", "NUMA not balanced"])
def test_warnings_that_do_no_harm_are_no_verdict(tmp_path: Path, text: str) -> None:
    log = "".join(map(init, EIGHT)) + "".join(map(call, EIGHT)) + warn(6, text)
    found = post_mortem(tmp_path, {"job.log": log})
    assert causes(found) == [("cannot_decide", "")] and text not in found.coverage["verdict"]


def test_a_closed_connection_is_no_cause(tmp_path: Path) -> None:
    """Ranks 1 to 7 say that a peer went; rank 0 says why."""
    closed = "socketProgress: Connection closed by remote peer node-a<1234>"
    log = "".join(map(init, EIGHT)) + "".join(warn(r, closed) for r in EIGHT[1:])
    alone = post_mortem(tmp_path / "a", {"job.log": log})
    assert causes(alone) == [("peer_closed", "1-7")] and not alone.coverage["decided"]
    log += warn(0, "Cuda failure 'unspecified launch failure'")
    assert causes(post_mortem(tmp_path / "b", {"job.log": log}))[0] == ("gpu_error", "0")


def test_hardware_beside_a_call_that_does_not_end(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = dict(dumps(loop(), frozen={3}))
    log = "".join(map(init, EIGHT)) + warn(1, IB)
    found = post_mortem(tmp_path, {**files, "nccl.log": log})
    assert causes(found) == [("not_completed", "0-7")]
    assert "rank 1 (node-a:4101): the peer did not answer" in found.coverage["verdict"]
    assert found.to_pylist()[0]["source"] == "flight_recorder, nccl_debug"


# RAS


def test_one_report_does_not_tell_slow_from_still(tmp_path: Path) -> None:
    counts = {r: 640 if r == 3 else 641 for r in EIGHT}
    found = post_mortem(tmp_path, {"ras.json": ras(counts)})
    assert causes(found) == [("missing_rank", "3")] and not found.coverage["decided"]
    assert "a second `ncclras` report" in texts(found, "to_decide")


def test_two_reports_do(tmp_path: Path) -> None:
    counts = {r: 640 if r == 3 else 641 for r in EIGHT}
    still = post_mortem(tmp_path / "a", {"1.json": ras(counts), "2.json": ras(counts)})
    assert causes(still) == [("missing_rank", "3")] and still.coverage["decided"]
    assert still.coverage["exclude_ranks"] == "[3]"
    later = {r: 644 if r == 3 else 645 for r in EIGHT}
    slow = post_mortem(tmp_path / "b", {"1.json": ras(counts), "2.json": ras(later)})
    assert causes(slow) == [("nothing_pending", "")] and not slow.coverage["decided"]
    assert "went on by 4 calls or more" in slow.coverage["verdict"]
    assert not slow.coverage.get("exclude_ranks")


def test_a_rank_that_does_not_answer(tmp_path: Path) -> None:
    found = post_mortem(tmp_path, {"ras.json": ras(dict.fromkeys(range(7), 641), (7,))})
    assert causes(found) == [("missing_rank", "7")] and found.coverage["decided"]


def test_ras_decides_what_dumps_leave_open(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = dict(dumps(missing_five()))
    del files["comm_lib_trace_rank_5"]
    counts = dict.fromkeys((0, 1, 2, 3, 4, 6, 7), 5)
    found = post_mortem(tmp_path, {**files, "ras.json": ras(counts, (5,))})
    assert causes(found) == [("missing_rank", "5")] and found.coverage["decided"]
    assert found.to_pylist()[0]["source"] == "flight_recorder, ras"


def test_all_alike_is_undecided(tmp_path: Path) -> None:
    found = post_mortem(tmp_path, {"ras.json": ras(dict.fromkeys(EIGHT, 641))})
    assert causes(found) == [("cannot_decide", "")]
    assert "In 1 of 1 communicators all ranks" in texts(found, "evidence")


def test_as_many_calls_but_not_the_same(tmp_path: Path) -> None:
    odd = json.loads(ras(dict.fromkeys(EIGHT, 641)))
    odd["communicators"][0]["ranks"][4]["collective_counts"] = {"AllReduce": 640, "AllGather": 3}
    found = post_mortem(tmp_path, {"ras.json": json.dumps(odd)})
    assert causes(found) == [("type_mismatch", "4")] and found.coverage["decided"]


# Python


def test_where_the_missing_rank_stands(tmp_path: Path) -> None:
    found = post_mortem(tmp_path, {**dumps(missing_five()), "stack_rank5.txt": SPY})
    assert causes(found) == [("missing_rank", "5")]
    assert texts(found, "evidence") == "rank 5 stands in next_batch (app/loader.py:88)."


def test_an_exception_explains_a_rank_without_a_dump(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = dict(dumps(missing_five()))
    del files["comm_lib_trace_rank_5"]
    found = post_mortem(tmp_path, {**files, "job.log": RESULT + OOM})
    assert causes(found) == [("missing_rank", "5")] and found.coverage["decided"]
    assert "memory or disk space ran out" in found.coverage["verdict"]
    assert not found.coverage.get("exclude_ranks")
    assert "DistBackendError" not in found.coverage["verdict"]


def test_an_exception_alone(tmp_path: Path) -> None:
    found = post_mortem(tmp_path, {"job.log": RESULT + OOM})
    assert causes(found) == [("out_of_memory", "5")]
    assert not found.coverage.get("exclude_ranks"), "it would run out of memory elsewhere too"


def test_a_broken_gpu_is_excluded_a_failed_kernel_is_not(tmp_path: Path) -> None:
    log = "".join(map(init, EIGHT))
    broken = warn(6, "Cuda failure 'uncorrectable ECC error encountered'")
    found = post_mortem(tmp_path / "a", {"job.log": log + broken})
    assert causes(found) == [("gpu_error", "6")] and found.coverage["exclude_ranks"] == "[6]"
    failed = warn(6, "Cuda failure 'an illegal memory access was encountered'")
    found = post_mortem(tmp_path / "b", {"job.log": log + failed})
    assert causes(found) == [("gpu_error", "6")] and not found.coverage.get("exclude_ranks")


def test_stacks_alone_decide_nothing(tmp_path: Path) -> None:
    found = post_mortem(tmp_path, {"stack_rank5.txt": SPY})
    assert causes(found) == [("cannot_decide", "")] and not found.coverage["decided"]
    assert "next_batch" in texts(found, "evidence")


def test_nothing_that_tells_of_a_hang(tmp_path: Path) -> None:
    bench = (SAMPLES / "nccl_tests/all_reduce_perf.txt").read_bytes()
    with pytest.raises(MissingTable, match="nothing here tells of a hang"):
        post_mortem(tmp_path, {"all_reduce_perf.txt": bench})


def test_summary_says_first_what_nccl_warns_of(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from htk.faces.cli.commands.summary import command

    (tmp_path / "nccl.log").write_text(init(0) + warn(0, "NUMA not balanced"))
    screen = CliRunner().invoke(command, [str(tmp_path)])
    assert screen.output.startswith("NCCL warns, 1 time: NUMA not balanced")


def test_progress_over_several_reports_is_that_of_the_newest(tmp_path: Path) -> None:
    """Rank 3 was one behind and has caught up; rank 6 is now two behind."""
    early = {r: 640 if r == 3 else 641 for r in EIGHT}
    late = {r: 648 if r == 6 else 650 for r in EIGHT}
    (tmp_path / "b.json").write_text(ras(early))
    (tmp_path / "a.json").write_text(ras(late))
    rows = ask_trace(open_trace(tmp_path, OpenOptions(cache=False)), "comm_progress").to_pylist()
    (row,) = [r for r in rows if r["type"] == "all_reduce"]
    assert (row["count_max"], row["count_min"], row["lag"]) == (650, 648, 2)
    assert (row["lagging_ranks"], row["ranks_heard"]) == ("6", 8)


def test_several_dumps_of_a_rank_are_no_damage(tmp_path: Path) -> None:
    for poll, calls in (("early", 4), ("late", 6)):
        (tmp_path / poll).mkdir()
        for name, dump in dumps({r: [Step((0, 1))] * calls for r in (0, 1)}).items():
            (tmp_path / poll / name).write_bytes(dump)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert trace.tables["parse_issues"].num_rows == 0
    assert "ranks 0-1 went on" in texts(ask_trace(trace, "hang"), "note")
