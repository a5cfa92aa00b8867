"""The cache under any sequence of what people, processes and disks do to it.

Whatever came before, an answer from the cache is the one that was written under its name.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from htk.base.core.parser import Parsed
from htk.base.io.entry import Entry, StoredEntry
from htk.base.io.store import Store

KEYS = st.sampled_from(["a", "b", "c"])
STORES = st.integers(0, 1)


def parsed(key: str) -> Parsed:
    """What a file is parsed to follows from the file, which the key names."""
    first = 1000 * ord(key)
    tables = {
        name: pa.table({"n": np.arange(first + k, first + k + 50), "t": [key, None] * 25})
        for k, name in enumerate(("cpu_ops", "launches"))
    }
    return Parsed(tables, ord(key), 9, {"host": key})


def derived(key: str) -> pa.Table:
    return pa.table({"of": [key] * 7})


def check(key: str, entry: Entry) -> None:
    expected = parsed(key)
    assert entry.parsed.rank == expected.rank and entry.parsed.facts == expected.facts
    assert list(entry.tables) == list(expected.tables)
    assert all(entry.tables[name].equals(table) for name, table in expected.tables.items())


class Cache(RuleBasedStateMachine):
    """Two processes on one folder; `intact` are entries that nothing has touched since."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.stores = [Store(self.root, 1 << 30) for _ in range(2)]
        self.intact: set[str] = set()

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    @rule(key=KEYS, store=STORES)
    def save(self, key: str, store: int) -> None:
        was_there = (self.root / key).exists()
        entry = self.stores[store].save(key, parsed(key))
        check(key, entry)
        if not was_there:
            assert isinstance(entry, StoredEntry)
            self.intact.add(key)

    @rule(key=KEYS, store=STORES)
    def find(self, key: str, store: int) -> None:
        entry = self.stores[store].find(key)
        if entry is None:
            assert key not in self.intact
            assert not (self.root / key).exists(), "what is damaged is dropped"
        else:
            check(key, entry)

    @rule(key=KEYS, store=STORES)
    def derive(self, key: str, store: int) -> None:
        entry = self.stores[store].find(key)
        if entry is not None:
            assert entry.derived("links", lambda: derived(key)).equals(derived(key))
            again = self.stores[1 - store].find(key)
            assert again is not None
            assert again.derived("links", lambda: derived(key)).equals(derived(key))

    @precondition(lambda self: self.intact)
    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.intact)))
        file = data.draw(st.sampled_from(sorted((self.root / key).iterdir())))
        content = bytearray(file.read_bytes())
        how = data.draw(st.sampled_from(["flip", "cut", "grow", "remove", "swap"]))
        spot = data.draw(st.integers(0, 1 << 20)) % len(content)  # sizes differ from run to run
        if how == "flip":
            content[spot] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "cut":
            del content[spot:]
        elif how == "grow":
            content += b"x"
        other = self.root / key / "parsed.arrow"
        file.unlink()
        if how == "swap" and other.exists() and file != other:
            shutil.copy(other, file)
        elif how not in ("remove", "swap"):
            file.write_bytes(content)
        self.intact.discard(key)

    @rule(store=STORES)
    def verify(self, store: int) -> None:
        count, _ = self.stores[store].verify()
        assert count >= len(self.intact)
        assert self.stores[store].verify()[1] == [], "what was damaged is gone"

    @rule()
    def leave_behind(self) -> None:
        """A process was killed while it wrote."""
        left = Path(tempfile.mkdtemp(prefix=".new-", dir=self.root))
        (left / "cpu_ops.arrow").write_bytes(b"half")

    @rule(store=STORES)
    def clear(self, store: int) -> None:
        self.stores[store].clear()
        self.intact.clear()
        assert not list(self.root.iterdir()), "leftovers of killed processes go too"

    @invariant()
    def what_is_intact_is_listed(self) -> None:
        if hasattr(self, "root"):
            assert self.intact <= {entry.folder.name for entry in self.stores[0].list()}


@pytest.mark.hypothesis
def test_an_answer_is_what_was_written_or_none() -> None:
    run_state_machine_as_test(
        Cache,
        settings=settings(max_examples=settings.default.max_examples // 2, stateful_step_count=12),
    )


def test_no_more_is_kept_than_the_limit_and_the_last() -> None:
    """Sizes are counted, the entry just written stays, and so do those used last."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), 1 << 30)
        store.save("a", parsed("a"))
        size = store.list()[0].size_bytes
        small = Store(Path(folder), int(2.5 * size))
        for key in "bcabbc":
            check(key, small.find(key) or small.save(key, parsed(key)))
            kept = {entry.folder.name for entry in small.list()}
            assert key in kept and len(kept) <= 2
