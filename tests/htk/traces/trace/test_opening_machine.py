"""A folder whose files come, change, break and go: what is opened is what lies there now."""

import gzip
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from htk.base.errors import HtkError
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, launch, of_rank, op, write

RANK = st.integers(0, 3)


class Folder(RuleBasedStateMachine):
    """`whole` holds the kernels' lengths of each rank whose file can be read."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.whole: dict[int, list[int]] = {}
        self.changes = 0

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    def files(self, rank: int) -> list[Path]:
        return [f for f in self.root.iterdir() if f.name.startswith(f"rank{rank}.")]

    @rule(rank=RANK, lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4))
    def record(self, rank: int, lengths: list[int]) -> None:
        """A file anew, or instead of the one that was there."""
        self.remove(rank)
        self.changes += 1
        events = [op("aten::mm", 0, 90)]
        for k, length in enumerate(lengths):
            events += [launch(k + 1, 20 * k + 1), kernel("k", 20 * k + 3, length, k + 1)]
        write(self.root / f"rank{rank}.json", *events, **of_rank(rank, 4), change=self.changes)
        self.whole[rank] = [1000 * length for length in lengths]

    @rule(rank=RANK)
    def compress(self, rank: int) -> None:
        for file in self.files(rank):
            if file.suffix == ".json":
                packed = file.with_name(file.name + ".gz")
                packed.write_bytes(gzip.compress(file.read_bytes()))
                file.unlink()

    @rule(rank=RANK)
    def break_file(self, rank: int) -> None:
        for file in self.files(rank):
            file.write_bytes(b'{"traceEv' if file.suffix == ".json" else b"\x1f\x8bnothing")
            self.whole.pop(rank, None)

    @rule(rank=RANK)
    def remove(self, rank: int) -> None:
        for file in self.files(rank):
            file.unlink()
        self.whole.pop(rank, None)

    @rule(name=st.sampled_from(["notes.txt", "core.json", "README.md"]))
    def lay_beside(self, name: str) -> None:
        (self.root / name).write_text("nothing that is a trace")

    @rule()
    def open(self) -> None:
        for cache in (True, True, False):  # parsed and kept, or from the cache; and without it
            try:
                trace = open_trace(self.root, OpenOptions(cache=cache))
            except HtkError:
                assert not self.whole
                continue
            assert trace.ranks == sorted(self.whole)
            rows = trace.tables["kernels"].to_pylist()
            found = {
                rank: [r["end_ns"] - r["start_ns"] for r in rows if r["rank"] == rank]
                for rank in trace.ranks
            }
            assert found == self.whole
            broken = {f.name for k in range(4) if k not in self.whole for f in self.files(k)}
            assert broken <= {Path(name).name for name, _ in trace.failed} | {
                Path(name).name for name in trace.unread
            }


@pytest.mark.hypothesis
def test_what_is_opened_is_what_lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path))
    run_state_machine_as_test(
        Folder,
        settings=settings(
            max_examples=settings.default.max_examples // 4,
            stateful_step_count=12,
            suppress_health_check=list(HealthCheck),
        ),
    )
