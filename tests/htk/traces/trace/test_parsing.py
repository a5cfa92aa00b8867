"""What is believed of a file's own words about the job."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from htk.answers.ask import ask_trace
from htk.base.core.stated_counts import RANKS
from htk.base.errors import TraceError
from htk.traces.trace import parsing
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, of_rank, write


@pytest.mark.parametrize(
    ("stated", "believed"), [(8, 8), (RANKS.most, RANKS.most), (RANKS.most + 1, None)]
)
def test_a_world_beyond_any_job_is_said_and_not_believed(
    stated: int, believed: int | None, tmp_path: Path
) -> None:
    facts = of_rank(0)
    facts["distributedInfo"] |= {"world_size": stated}
    file = write(tmp_path / "t.json", kernel("k", 1, 3), **facts)
    trace = open_trace(file, OpenOptions(cache=False))
    assert trace.tables["ranks"]["world_size"].to_pylist() == [believed]
    assert ask_trace(trace, "kernel_top").coverage["world_size"] == believed
    issues = trace.tables["parse_issues"].to_pylist()
    assert [issue["kind"] for issue in issues] == ["absurd_count"] * (believed is None)


def fail(*_: object) -> bool:
    raise RuntimeError("boom")


@pytest.mark.parametrize(
    "plugin",
    [
        SimpleNamespace(NAME="odd", sniff=fail, parse=fail),
        SimpleNamespace(NAME="odd", sniff=lambda head: True, parse=fail),
    ],
    ids=["sniff", "parse"],
)
def test_a_plugin_that_fails_is_named_and_not_the_file(
    plugin: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "in_turn", lambda _beginning: iter([plugin]))
    (tmp_path / "t.txt").write_text("of a format of its own")
    with pytest.raises(TraceError, match="parser 'odd' of a plugin failed: RuntimeError: boom"):
        open_trace(tmp_path / "t.txt", OpenOptions(cache=False))


@pytest.mark.parametrize("rank", [RANKS.most + 1, 2**31])
def test_a_rank_beyond_any_job_is_said_and_not_believed(rank: int, tmp_path: Path) -> None:
    file = write(tmp_path / "t.json", kernel("k", 1, 3), **of_rank(rank))
    trace = open_trace(file, OpenOptions(cache=False))
    assert ask_trace(trace, "kernel_top").to_pylist()[0]["count"] == 1
    assert "absurd_count" in trace.tables["parse_issues"]["kind"].to_pylist()
