"""All ranks in one Chrome trace, and traces for HTA."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import htk
from htk.answers.export.merged import _AS_IS, _Rank
from htk.faces.cli.commands.convert import command
from htk.faces.cli.commands.simulate import command as simulate
from htk.traces.trace.trace import Trace
from tests.kineto_file import kernel, launch, of_rank, op, step, write

_DRIFTING = {
    "gpus-per-node": "4",
    "layers": "4",
    "hidden": "512",
    "heads": "8",
    "kv-heads": "8",
    "seq": "256",
    "micro-batch": "1",
    "steps": "4",
    "clocks": "process",
    "clock-offset-us": "5000",
    "clock-drift-ppm": "20",
}


def _convert(*args: str) -> str:
    outcome = CliRunner().invoke(command, [*args], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def _merged(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        gzip.decompress((folder / "merged.json.gz").read_bytes()), parse_float=str
    )["traceEvents"]
    return found


@pytest.fixture
def two_ranks(tmp_path: Path) -> Path:
    """Rank 1 recorded the same 1.5 us after rank 0, by its base time."""
    label = {"ph": "M", "name": "process_labels", "pid": 0, "ts": 0, "args": {"labels": "GPU 0"}}
    for rank in (0, 1):
        flow = {"ph": "s", "id": 7, "pid": 100, "tid": 1, "ts": 2, "cat": "ac2g", "name": "ac2g"}
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        copy = kernel("Memcpy HtoD (Pinned -> Device)", 6, 2, 2)
        copy["cat"] = "gpu_memcpy"
        copy["args"] |= {"bytes": 8, "memory bandwidth (GB/s)": 4.5}
        memory = {"Device Type": 1, "Device Id": 0, "Bytes": 64, "Total Allocated": 64, "Addr": 1}
        events = (
            step(1, 0, 10),
            op("aten::a", 1, 3),
            launch(1, 2.125),
            kernel("k", 4, 1, 1),
            launch(2, 3),
            copy,
            flow,
            label,
            {"ph": "i", "name": "[memory]", "pid": 100, "tid": 1, "ts": 3, "args": memory},
        )
        write(folder / "t.json", *events, **of_rank(rank, 2, base=10**18 + 1500 * rank))
    return tmp_path


def test_events_that_are_no_strict_json_are_made_so(tmp_path: Path) -> None:
    """Kineto wrote bare inf and nan, and names with backslashes and line breaks as they were."""
    path = write(tmp_path / "t.json", op("aten::a", 0, 9), launch(1, 1), kernel("k", 3, 1, 1),
                 launch(2, 5), kernel("l", 6, 1, 2), **of_rank(0))  # fmt: skip
    text = path.read_text()
    for name, args in (
        ("k", '"bw": inf, "deep": [1, {"x": -inf}, nan], '),
        ("l", '"\\q": "a\tb\\z", '),
    ):
        head, _, tail = text.partition(f'"name": "{name}"')
        before, brace, after = tail.partition('"args": {')
        text = f'{head}"name": "{name}"{before}{brace}{args}{after}'
    path.write_text(text)
    out = tmp_path / "out"
    _convert(str(path), "--format", "chrome", "-o", str(out), "--no-cache")
    args = {e["name"]: e["args"] for e in _merged(out) if e.get("cat") == "kernel"}
    assert args["k"]["bw"] == "inf" and args["k"]["deep"] == [1, {"x": "-inf"}, "nan"]
    assert args["l"].keys() >= {"\\q"} and args["l"]["\\q"] == "a\tb\\z"


def test_ranks_share_a_clock_and_nothing_else(two_ranks: Path) -> None:
    out = two_ranks / "out"
    said = _convert(str(two_ranks), "--format", "chrome", "-o", str(out), "--no-cache")
    events = _merged(out)
    assert "clocks as recorded" in said
    starts = [e["ts"] for e in events if e["name"] == "aten::a"]
    assert starts == ["1.000", "2.500"]
    assert "2.125" in [e["ts"] for e in events if e["name"] == "cudaLaunchKernel"]
    assert len({e["id"] for e in events if e["name"] == "ac2g" and e["ph"] == "s"}) == 2
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    of_kernels = [named[e["pid"]] for e in events if e.get("cat") == "kernel"]
    assert of_kernels == ["rank 0: GPU 0", "rank 1: GPU 0"]
    assert "rank 1: counters" in named.values()


def test_counters_are_drawn_in(two_ranks: Path) -> None:
    out = two_ranks / "out"
    _convert(
        str(two_ranks), "--format", "chrome", "-o", str(out), "--no-cache", "--table", "kernels"
    )
    series: dict[str, list[tuple[str, Any]]] = {}
    for e in _merged(out):
        if e["ph"] == "C" and e["pid"] < 2000:
            series.setdefault(e["name"], []).append((e["ts"], e["args"]["value"]))
    assert series["queue length, stream 7"] == [
        ("2.125", 1),
        ("3.000", 2),
        ("4.000", 1),
        ("6.000", 0),
    ]
    copied = series["Memcpy HtoD (Pinned -> Device), GB/s"]
    assert copied == [("6.000", "4.5"), ("8.000", "0.0")]
    assert series["memory allocated, bytes"] == [("3.000", 64)]


def test_the_sample_is_merged_whole_with_its_critical_path(tmp_path: Path) -> None:
    _convert("sample", "--format", "chrome", "-o", str(tmp_path / "out"))
    events = _merged(tmp_path / "out")
    found = Counter(e.get("cat") for e in events)
    on_gpu = htk.open("sample").tables["kernels"].num_rows
    assert found["kernel"] + found["gpu_memcpy"] + found["gpu_memset"] == on_gpu
    assert found["critical_path"] > 10
    again = CliRunner().invoke(
        command, ["sample", "--format", "chrome", "-o", str(tmp_path / "out")]
    )
    assert "there already" in str(again.exception)


def test_hta_finds_the_ranks(two_ranks: Path) -> None:
    pytest.importorskip("hta", reason="HTA is an extra")
    from hta.trace_analysis import TraceAnalysis

    out = two_ranks / "out"
    _convert(str(two_ranks), "--format", "hta", "-o", str(out), "--no-cache")
    assert sorted(file.name for file in out.iterdir()) == ["rank-0.json.gz", "rank-1.json.gz"]
    theirs = TraceAnalysis(trace_dir=str(out), include_last_profiler_step=True)
    assert sorted(theirs.t.get_ranks()) == [0, 1]
    assert htk.open(out).ranks == [0, 1]


def test_times_keep_every_digit_whatever_form_they_have(tmp_path: Path) -> None:
    """Also those that are no decimals of nanoseconds: text, powers, further digits."""
    times = ["1.5", "-2.001", "7e1", '"3.25"', "4.0006", "0", "1234567890123.456"]
    for rank in (0, 1):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        path = write(folder / "t.json", op("aten::a", 1, 3), **of_rank(rank, 2, base=10**18))
        event = '{{"ph": "i", "name": "x{}", "pid": "p", "tid": 1, "ts": {}, "args": {{"ts": 5}}}}'
        more = ",".join(event.format(n, time) for n, time in enumerate(times))
        path.write_text(path.read_text().replace('"traceEvents": [', f'"traceEvents": [{more},'))
    _convert(str(tmp_path), "--format", "chrome", "-o", str(tmp_path / "out"), "--no-cache")
    events = [e for e in _merged(tmp_path / "out") if e["name"].startswith("x")]
    assert {e["args"]["ts"] for e in events} == {5} and len(events) == 2 * len(times)
    # From the first activity on, at 1 us; 4000.6 ns are 4001 ns.
    assert {e["name"]: e["ts"] for e in events[: len(times)]} == {
        "x0": "0.500", "x1": "-3.001", "x2": "69.000", "x3": "2.250", "x4": "3.001", "x5": "-1.000",
        "x6": "1234567890122.456",
    }  # fmt: skip


def test_what_begins_with_a_recording_moves_with_its_clock(tmp_path: Path) -> None:
    """Rank 1 began 5 us later; its first kernel begins at the zero of its file."""
    for rank in (0, 1):
        folder = tmp_path / "in" / str(rank)
        label = {"ph": "M", "name": "thread_name", "pid": 100, "tid": 1, "ts": 0.0, "args": {}}
        folder.mkdir(parents=True)
        base = 10**18 + 5000 * rank
        write(folder / "t.json", label, kernel("first", 0, 2), **of_rank(rank, 2, base=base))
    _convert(str(tmp_path / "in"), "--format", "chrome", "-o", str(tmp_path / "out"))
    events = _merged(tmp_path / "out")
    assert [e["ts"] for e in events if e["name"] == "first"] == ["0.000", "5.000"]
    assert {e["ts"] for e in events if e["name"] == "thread_name"} == {"0.0"}


def test_a_rank_alone_stays_that_rank(tmp_path: Path) -> None:
    write(tmp_path / "t_rank_1.json", launch(1, 1), kernel("only", 3, 2, 1))
    _convert(str(tmp_path / "t_rank_1.json"), "--format", "chrome", "-o", str(tmp_path / "out"))
    assert htk.open(tmp_path / "t_rank_1.json").ranks == htk.open(tmp_path / "out").ranks == [1]


def test_a_file_of_very_many_processes_keeps_them_to_itself(tmp_path: Path) -> None:
    """More of them than a thousand, so that a number apiece for each file would meet the next's."""
    for rank in (0, 1, 2):
        many = 1200 if rank < 2 else 3
        events = [{**op(f"of {rank}", 5 * k, 2), "pid": 5000 + k} for k in range(many)]
        (tmp_path / str(rank)).mkdir()
        write(tmp_path / str(rank) / "t.json", *events, **of_rank(rank, 3))
    _convert(str(tmp_path), "--format", "chrome", "-o", str(tmp_path / "out"), "--no-cache")
    events = [e for e in _merged(tmp_path / "out") if e["ph"] == "X"]
    ranks: dict[int, set[str]] = {}
    for event in events:
        ranks.setdefault(event["pid"], set()).add(event["name"])
    assert len(ranks) == 1200 + 1200 + 3
    assert all(len(names) == 1 for names in ranks.values())
    first = [min(p for p, own in ranks.items() if f"of {rank}" in own) for rank in range(3)]
    assert first == [1000, 3000, 5000]


def test_arrows_of_the_last_of_many_files_stay_apart_in_a_viewer(two_ranks: Path) -> None:
    """A viewer's numbers are doubles: beyond 2^53 neighbours are one."""
    part = htk.open(two_ranks).files[0]
    arrows = [
        json.loads(_Rank(place, 1000, part, 0, 0, _AS_IS)._renumber_arrow(str(number).encode()))
        for place in (0, 1, 8191, 8192, 20_000)
        for number in (7, 8, 10**12 - 2, 10**12 - 1)
    ]
    assert len({value if isinstance(value, str) else float(value) for value in arrows}) == 20


def _counted_tree(trace: Trace) -> dict[tuple[int, str], tuple[int, int]]:
    rows = trace.op_tree(min_pct=0.0).to_pylist()
    return {(row["rank"], row["path"]): (row["count"], row["kernels"]) for row in rows}


def test_calls_stay_within_their_callers_where_clocks_drift(tmp_path: Path) -> None:
    """Both ends of a call are on the common clock: no call outlasts the one that made it."""
    made = [f"--{option}={value}" for option, value in _DRIFTING.items()]
    made += ["-o", str(tmp_path / "job")]
    assert CliRunner().invoke(simulate, made, catch_exceptions=False).exit_code == 0
    said = _convert(str(tmp_path / "job"), "--format", "chrome", "-o", str(tmp_path / "out"))
    assert "clocks aligned" in said
    threads: dict[tuple[int, int], list[tuple[Decimal, Decimal]]] = {}
    for event in _merged(tmp_path / "out"):
        if event.get("ph") == "X" and event.get("cat") in ("cpu_op", "cuda_runtime"):
            start = Decimal(event["ts"])
            call = (start, start + Decimal(event["dur"]))
            threads.setdefault((event["pid"], event["tid"]), []).append(call)
    assert len(threads) == 8
    for calls in threads.values():
        callers: list[Decimal] = []
        for start, end in sorted(calls, key=lambda call: (call[0], -call[1])):
            callers = [until for until in callers if until > start]
            assert not callers or end <= callers[-1]
            callers.append(end)
    job = htk.open(tmp_path / "job", cache=False)
    merged = htk.open(tmp_path / "out", cache=False)
    assert _counted_tree(job) == _counted_tree(merged)
