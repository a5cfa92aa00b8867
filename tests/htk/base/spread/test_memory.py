"""How much memory work may take: what the system and the control groups leave."""

import os
from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.base.spread.memory import free_bytes, parse_bytes
from htk.base.spread.workplace import Workplace


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 << 30), ("512 MiB", 512 << 20), ("1.5g", 3 << 29), ("100000000", 100_000_000)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "-4GB", "4 GHz", "1KB", "63MB", "4GBB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="memory"):
        parse_bytes(text)


def machine(folder: Path, available_kb: int, group: str = "") -> tuple[Path, Path]:
    proc, cgroup = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:   {available_kb} kB\n")
    (proc / "self/cgroup").write_text(group)
    cgroup.mkdir()
    return cgroup, proc


def test_without_groups_what_is_available_is_free(tmp_path: Path) -> None:
    assert free_bytes(*machine(tmp_path, 5000)) == 5000 << 10


def test_a_group_or_one_round_it_bounds_what_is_free(tmp_path: Path) -> None:
    cgroup, proc = machine(tmp_path, 5_000_000, "0::/pod/box\n")
    box = cgroup / "pod/box"
    box.mkdir(parents=True)
    (box / "memory.max").write_text("max\n")
    (box / "memory.current").write_text("7\n")
    (cgroup / "pod/memory.max").write_text("1000\n")
    (cgroup / "pod/memory.current").write_text("400\n")
    assert free_bytes(cgroup, proc) == 600


def test_groups_of_the_first_version_bound_too(tmp_path: Path) -> None:
    cgroup, proc = machine(tmp_path, 5_000_000, "5:cpu:/a\n4:memory:/job\n")
    job = cgroup / "memory/job"
    job.mkdir(parents=True)
    (job / "memory.limit_in_bytes").write_text("900\n")
    (job / "memory.usage_in_bytes").write_text("1000\n")
    assert free_bytes(cgroup, proc) == 0


def test_files_are_read_as_many_at_a_time_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    roomy, tight = Workplace(memory_bytes=1 << 40), Workplace(memory_bytes=1 << 20)
    assert roomy.files_at_once(1 << 20) == 16
    assert tight.files_at_once(1 << 30) == 1


def test_small_files_are_read_in_turn_unless_something_else_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    work = Workplace(memory_bytes=1 << 40)
    assert work.reader([100_000, 70_000], waited_for=False).workers == 1
    assert work.reader([100_000, 70_000], waited_for=True).workers == 16
    assert work.reader([100_000, 2_000_000], waited_for=False).workers == 16
    assert work.reader([100_000] * 99 + [2_000_000], waited_for=False).workers == 1
    assert work.reader([], waited_for=False).workers == 1


@pytest.mark.parametrize("version", [1, 2])
def test_pages_of_files_that_were_read_are_free(tmp_path: Path, version: int) -> None:
    cgroup, proc = machine(tmp_path, 5_000_000, "4:memory:/job\n" if version == 1 else "0::/job\n")
    job = cgroup / ("memory/job" if version == 1 else "job")
    job.mkdir(parents=True)
    limit, used = ("limit_in_bytes", "usage_in_bytes") if version == 1 else ("max", "current")
    (job / f"memory.{limit}").write_text("1000\n")
    (job / f"memory.{used}").write_text("990\n")
    total = "total_" if version == 1 else ""
    own = "inactive_file 1\nactive_file 2\n" if version == 1 else ""  # without groups within it
    (job / "memory.stat").write_text(
        f"{own}{total}inactive_anon 50\n{total}inactive_file 600\n{total}active_file 200\n"
    )
    assert free_bytes(cgroup, proc) == 810
