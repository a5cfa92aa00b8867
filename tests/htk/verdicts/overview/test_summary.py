"""The verdict: what it says of public traces, and in which shapes."""

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.faces.cli.commands.diff import command as diff
from htk.faces.cli.commands.summary import command
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.verdicts.overview.summary import CAUSES, build_summary_result, reach_verdict
from tests.kineto_file import kernel, launch, step, write
from tests.parsers.xplane.tpu_profile import tpu_profile

SAMPLES = Path(__file__).parents[4] / "sample_traces"


@pytest.mark.parametrize("part", ["dlrm_8rank", "hta/trace_diff/control", "tracelens/mi210"])
def test_bars_add_up_to_the_window(shared: Path, part: str) -> None:
    found = reach_verdict(open_trace(shared / "traces" / part))
    assert sum(s.pct for s in found.shares) == pytest.approx(100)
    assert abs(sum(s.time_ns for s in found.shares) - found.window_ns) <= len(found.shares)
    assert len(found.causes) <= CAUSES and found.next


def test_waiting_is_told_from_moving_bytes(shared: Path) -> None:
    found = reach_verdict(open_trace(shared / "traces/dlrm_8rank"))
    shares = {s.name: s.pct for s in found.shares}
    assert shares["exposed wait for other ranks"] > 20 * shares["exposed transfer"]
    assert "stragglers" in dict(found.next)


def test_without_gpu_work_the_host_s_steps_are_told(shared: Path) -> None:
    found = reach_verdict(open_trace(shared / "traces/hta/cpu_only"))
    assert found.on_host and found.step_ns == found.cpu_step_ns
    assert sum(s.pct for s in found.shares) == pytest.approx(100)
    assert {"time", "cause", "next"} == set(build_summary_result(found).table["part"].to_pylist())


def test_steps_that_cover_little_are_no_measure_of_the_rest(tmp_path: Path) -> None:
    """A step of 1 us in a recording of 1,108 us; the same step, and little besides."""
    short = [step(1, 0, 10), launch(1, 1), kernel("copy", 2, 1, 1), launch(2, 100)]
    long = write(tmp_path / "long.json", *short, kernel("gemm", 110, 1000, 2))
    found = reach_verdict(open_trace(long))
    assert (found.step_ns, found.window_ns, found.steps) == (None, 1_108_000, 1)
    assert found.headline == "1 rank, 1.11 ms recorded, of which 1 step covers little"
    near = write(tmp_path / "near.json", *short[:3], launch(2, 2.5), kernel("gemm", 3, 0.5, 2))
    assert reach_verdict(open_trace(near)).step_ns == 1_500


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ("job_layout", "the layout of a job, and no recording"),
        ("kernel_stacks", "stacks of kernels beside the trace, and no recording"),
        ("link_metrics", "counters of links, and no recording"),
    ],
)
def test_what_stands_beside_a_recording_asks_for_it(sample: str, said: str) -> None:
    with pytest.raises(MissingTable, match=f"{said}; open both together"):
        reach_verdict(open_trace(SAMPLES / sample))


@pytest.mark.parametrize("sample", ["operation_rows", "proton/sums", "debug_server"])
def test_what_is_asked_next_is_answered(sample: str) -> None:
    """Rows of which no step is whole, and kernels without operators, answer some questions less."""
    opened = open_trace(SAMPLES / sample)
    told = reach_verdict(opened)
    for name, _ in told.next:
        assert len(ask_trace(opened, name)), name
    assert not told.headline.startswith((" ", "\n"))


_OF_GPUS = re.compile(
    r"CUDA|cuda|torch\.compile|\.item|tensor cores|--graphs|nvidia|NVLink|NCCL_|hipMalloc"
)


@pytest.mark.parametrize("sample", ["ascend", "ascend_db", "ascend_tables", "xplane"])
def test_ways_of_gpus_are_not_advised_to_other_accelerators(sample: str) -> None:
    _assert_no_ways_of_gpus(SAMPLES / sample)


def test_ways_of_gpus_are_not_advised_to_tpus(tmp_path: Path) -> None:
    (tmp_path / "host1.xplane.pb").write_bytes(tpu_profile(marks="host"))
    _assert_no_ways_of_gpus(tmp_path)


def test_ways_of_gpus_are_not_advised_to_mtia(shared: Path) -> None:
    _assert_no_ways_of_gpus(shared / "traces/hta/mtia_inference_trace")


def _assert_no_ways_of_gpus(path: Path) -> None:
    trace = open_trace(path)
    every_cause = ask_trace(trace, "recommendations", min_pct=0.0)
    texts = [
        *build_summary_result(reach_verdict(trace)).table.to_pylist(),
        *every_cause.to_pylist(),
    ]
    with suppress(MissingTable):  # without operators
        texts += ask_trace(trace, "fusible_chains", n=0).to_pylist()
    assert not _OF_GPUS.findall(" ".join(str(text) for row in texts for text in row.values()))


@pytest.mark.parametrize(("sample", "said", "asked"), [
    ("flight_recorder/hang_missing_rank_v2.10", "rank 3 never came", "hang"),
    ("nccl_debug", "8 collectives (nccl_debug)", "comm_summary"),
    ("rccl_replay", "1 collective (rccl_replay)", "comm_summary"),
    ("nccl_tests", "110 benchmark points", "comm_model"),
    ("ras", "26 communicator counts", "comm_progress"),
    ("memory_snapshot", "7 memory events", "memory_peaks"),
])  # fmt: skip
def test_without_a_profile_it_says_what_there_is(sample: str, said: str, asked: str) -> None:
    screen = CliRunner().invoke(command, [str(SAMPLES / sample)])
    assert screen.exit_code == 0 and said in screen.output
    assert f"htk {asked.replace('_', '-')}" in screen.output and "GPU time" not in screen.output


def test_on_one_screen_and_for_machines(shared: Path) -> None:
    path = str(shared / "traces/hta/trace_diff/control")
    screen = CliRunner().invoke(command, [path])
    assert screen.exit_code == 0 and len(screen.output.splitlines()) < 45
    assert "Where the time goes" in screen.output and "Look at next" in screen.output
    assert "htk comm-" in screen.output and not re.search(r"htk \w+_", screen.output)
    told = json.loads(CliRunner().invoke(command, [path, "--format", "json"]).output)
    assert told["analysis"] == "summary" and told["coverage"]["steps"] == 6
    assert sum(r["share_pct"] for r in told["rows"] if r["part"] == "time") == pytest.approx(100)


def test_diff_of_two_ranks_for_machines(shared: Path) -> None:
    path = str(shared / "traces/dlrm_8rank")
    args = [path, "--base-ranks", "0", "--new-ranks", "7", "--by", "kernel", "--format", "json"]
    told = json.loads(CliRunner().invoke(diff, args).stdout)
    assert told["analysis"] == "diff" and told["rows"]
    assert CliRunner().invoke(diff, [path]).exit_code == 2


def test_causes_of_idle_time_are_named_in_words() -> None:
    """The 8-rank sample has a loader that starves one rank; all faces show this one text."""
    trace = open_trace(SAMPLES / "simulated/llama2-7b", OpenOptions(cache=False))
    (data,) = [c for c in reach_verdict(trace).causes if c.finding == "the GPU waits for data"]
    assert "GPU idle: data loading " in data.evidence
    assert "host_data_loading" not in data.evidence
    assert "#_SingleProcessDataLoaderIter.__next__" in data.evidence, "names of calls stay"
