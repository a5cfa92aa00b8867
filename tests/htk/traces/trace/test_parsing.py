"""What is believed of a file's own words about the job."""

from pathlib import Path

import pytest

from htk.answers.ask import ask
from htk.base.core.parser import MOST_RANKS
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, of_rank, write


@pytest.mark.parametrize(
    ("stated", "believed"), [(8, 8), (MOST_RANKS, MOST_RANKS), (MOST_RANKS + 1, None)]
)
def test_a_world_beyond_any_job_is_said_and_not_believed(
    stated: int, believed: int | None, tmp_path: Path
) -> None:
    facts = of_rank(0)
    facts["distributedInfo"] |= {"world_size": stated}
    file = write(tmp_path / "t.json", kernel("k", 1, 3), **facts)
    trace = open_trace(file, OpenOptions(cache=False))
    assert trace.tables["ranks"]["world_size"].to_pylist() == [believed]
    assert ask(trace, "kernel_top").coverage["world_size"] == believed
    issues = trace.tables["parse_issues"].to_pylist()
    assert [issue["kind"] for issue in issues] == ["absurd_count"] * (believed is None)
