"""Two jobs whose files lie in one folder: told apart, named, and never one recording."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import htk
from htk.base.errors import TraceError, UsageError
from htk.faces.cli.commands.doctor import command
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, of_rank, op, write

_WORLD = 2
_BENCHMARK = Path(__file__).parents[4] / "sample_traces/nccl_tests/all_reduce_perf.txt"


def _write_job(folder: Path, names: tuple[str, str], operator: str, **header: object) -> None:
    """Write two ranks that run one operator, at the same time as every other job's."""
    folder.mkdir(exist_ok=True)
    for rank, name in enumerate(names):
        event: Event = op(operator, 5, 10 + ord(operator[-1]))
        write(folder / name, event, **{**of_rank(rank, _WORLD), **header})


def _open(folder: Path, job: str | None = None) -> Trace:
    return open_trace(folder, OpenOptions(cache=False, job=job))


def _operators(trace: Trace) -> list[tuple[int, str]]:
    rows = trace.tables["cpu_ops"].to_pylist()
    return [(row["rank"], row["name"]) for row in rows]


def _by_name(tmp_path: Path) -> Path:
    for name in "AB":
        _write_job(tmp_path, (f"job{name}_rank0.json", f"job{name}_rank1.json"), f"of {name}")
    return tmp_path


def _by_folder(tmp_path: Path) -> Path:
    for name in "AB":
        _write_job(tmp_path / f"run-{name}", ("rank0.json", "rank1.json"), f"of {name}")
    return tmp_path


def _by_host(tmp_path: Path) -> Path:
    for name, pid in (("A", 10), ("B", 20)):
        names = [f"{pid + rank}.1700000000000000000.json" for rank in range(_WORLD)]
        _write_job(tmp_path, (names[0], names[1]), f"of {name}", host_name=f"node-{name}")
    return tmp_path


def _by_process_ids(tmp_path: Path) -> Path:
    """The default of torch names host, process and time: two jobs of one host."""
    for name, pid in (("A", 1000), ("B", 2000)):
        names = [f"node_{pid + k}.17000000000000000{pid + k}.pt.trace.json" for k in range(2)]
        _write_job(tmp_path, (names[0], names[1]), f"of {name}")
    return tmp_path


def _by_scheduler(tmp_path: Path) -> Path:
    for name, pid in (("A", 10), ("B", 20)):
        names = [f"{pid + rank}.json" for rank in range(_WORLD)]
        facts = {"htk_environment": {"slurm_job_id": f"77{name}"}}
        _write_job(tmp_path, (names[0], names[1]), f"of {name}", **facts)
    return tmp_path


def _by_request(tmp_path: Path) -> Path:
    """Files of one request for a trace share its id; names are of processes."""
    for name, pid in (("A", 10), ("B", 20)):
        names = [f"{pid + rank}.json" for rank in range(_WORLD)]
        _write_job(tmp_path, (names[0], names[1]), f"of {name}", trace_id=f"request-{name}")
    return tmp_path


@pytest.mark.parametrize(
    ("write_jobs", "names"),
    [
        (_by_name, ("jobA", "jobB")),
        (_by_folder, ("run-A", "run-B")),
        (_by_host, ("node-A", "node-B")),
        (_by_process_ids, ("pid-1000", "pid-2000")),
        (_by_scheduler, ("77A", "77B")),
        (_by_request, ("request-A", "request-B")),
    ],
)
def test_two_jobs_of_one_time_are_named_and_one_is_chosen(
    tmp_path: Path, write_jobs: Callable[[Path], Path], names: tuple[str, str]
) -> None:
    folder = write_jobs(tmp_path)
    both = rf"2 jobs: {names[0]} \(2 files.*{names[1]} \(2 files"
    with pytest.raises(TraceError, match=both):
        _open(folder)
    for name, letter in zip(names, "AB", strict=True):
        assert _operators(_open(folder, name)) == [(0, f"of {letter}"), (1, f"of {letter}")]


def test_a_part_of_a_name_chooses_if_it_is_of_one(tmp_path: Path) -> None:
    folder = _by_name(tmp_path)
    assert _operators(_open(folder, "A")) == [(0, "of A"), (1, "of A")]
    for wanted in ("job", "C"):
        with pytest.raises(UsageError, match=f"--job {wanted}: there are files of 2 jobs"):
            _open(folder, wanted)


def test_jobs_of_other_sizes_are_two_though_they_share_no_rank(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", op("small", 5, 10), **of_rank(0, 2))
    write(tmp_path / "rank5.json", op("large", 5, 10), **of_rank(5, 8))
    with pytest.raises(TraceError, match=r"2 jobs: world-2 .* world-8"):
        _open(tmp_path)
    assert _operators(_open(tmp_path, "world-8")) == [(5, "large")]


def test_jobs_without_a_rank_in_common_are_told_by_their_groups(tmp_path: Path) -> None:
    """Rank 0 has a group with rank 1, of which rank 1's file does not know; so on."""
    for rank, letter in enumerate("ABAB"):
        own = of_rank(rank, 4)
        own["distributedInfo"] |= {"pg_config": [{"pg_name": "1", "ranks": [rank, rank + 1]}]}
        write(tmp_path / f"job{letter}_rank{rank}.json", op("x", 5, 10), **own)
    with pytest.raises(TraceError, match=r"2 jobs: jobA \(2 files.*jobB \(2 files"):
        _open(tmp_path)
    assert _open(tmp_path, "jobB").ranks == [1, 3]


@pytest.mark.parametrize(
    "environment", [{"htk_environment": {"slurm_job_id": "7"}}, {"PT_PROFILER_JOB_NAME": "7"}]
)
def test_jobs_without_a_rank_in_common_are_told_by_their_scheduler(
    tmp_path: Path, environment: dict[str, object]
) -> None:
    for rank, letter in enumerate("AB"):
        text = json.dumps(environment).replace("7", f"7{letter}")
        write(tmp_path / f"rank{rank}.json", op("x", 5, 10), **of_rank(rank, 2), **json.loads(text))
    with pytest.raises(TraceError, match=r"2 jobs: 7A \(1 file.*7B \(1 file"):
        _open(tmp_path)


def test_hosts_and_names_of_one_job_make_it_no_two(tmp_path: Path) -> None:
    """Two nodes with names and folders of their own, whose ranks know their common group."""
    for rank, letter in enumerate("AABB"):
        listed = [{"pg_name": "1", "pg_size": 4, "ranks": [0, 1, 2, 3]}]
        own = of_rank(rank, 4)
        own["distributedInfo"] |= {"pg_config": listed}
        folder = tmp_path / f"node{letter}"
        folder.mkdir(exist_ok=True)
        write(folder / f"{letter}_rank{rank}.json", op("x", 5, 10), **own, host_name=letter)
    assert _open(tmp_path).ranks == [0, 1, 2, 3]


def test_jobs_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    for name in ("1", "2"):
        for rank in range(2):
            event = op("x", 5, 10 + int(name))
            write(tmp_path / f"{rank}.{name}.json", event, **of_rank(rank, 2))
    with pytest.raises(
        TraceError, match=r"0\.1\.json and .*0\.2\.json are of one rank and one time"
    ):
        _open(tmp_path)


def test_files_of_other_formats_are_every_jobs(tmp_path: Path) -> None:
    _by_name(tmp_path)
    (tmp_path / "nccl-tests.txt").write_text(_BENCHMARK.read_text())
    for name in "AB":
        assert _open(tmp_path, name).tables["bench_points"].num_rows > 1


def test_cycles_of_one_job_are_one_recording_whatever_their_folders(tmp_path: Path) -> None:
    for k in range(2):
        (tmp_path / f"iteration_{k}").mkdir()
        for rank in range(2):
            event = op("x", 5 + 100 * k, 10)
            write(tmp_path / f"iteration_{k}" / f"rank{rank}.json", event, **of_rank(rank, 2))
    assert _open(tmp_path).cycles == [0, 1]
    with pytest.raises(UsageError, match=re.escape("--job A: the files are of one job")):
        _open(tmp_path, "A")


def test_python_and_the_command_line_choose_a_job(tmp_path: Path) -> None:
    folder = _by_name(tmp_path)
    assert _operators(htk.open(folder, job="B", cache=False)) == [(0, "of B"), (1, "of B")]
    runner = CliRunner()
    answered = runner.invoke(command, [str(folder), "--no-cache", "--job", "A"])
    assert "all 2 ranks" in answered.output
