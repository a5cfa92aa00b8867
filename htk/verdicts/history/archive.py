"""A history: a folder or bucket with the facts of many runs, which many machines add to.

runs/, costs/ and summaries/ hold one Parquet file for each run, named by what was recorded when, so
that a run that is added twice is there once. notes/ holds what people say of them. Each file is
checked when it is read; one that is damaged costs no other run.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from htk.base.errors import TraceError, UsageError
from htk.base.io.object_folder import ObjectFolder
from htk.base.io.raw_files import spell_reason
from htk.base.mappings import Facts
from htk.traces.compare.baseline import RecordedBaseline
from htk.verdicts.history.costs import costs_of, costs_table
from htk.verdicts.history.notes import (
    NOTE_NAME,
    Mark,
    Note,
    Remarks,
    collect_remarks,
    new_note,
    read_note,
)
from htk.verdicts.history.run_facts import RunFacts
from htk.verdicts.history.sealed_parquet import pack_table, unpack_table
from htk.verdicts.history.tables import COSTS, RUNS
from htk.verdicts.overview.summary import RETURNS as SUMMARY

VARIABLE = "HTK_HISTORY"
_MOST_BYTES = {"runs": 1 << 20, "costs": 32 << 20, "summaries": 4 << 20, "notes": 64 << 10}
_FILE = re.compile(r"([0-9a-f]{16})\.parquet")
_SCHEMAS = {"runs": RUNS, "costs": COSTS, "summaries": SUMMARY}


def default_address() -> str:
    """Return where the history lies: HTK_HISTORY, else a folder of the user's."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return os.environ.get(VARIABLE) or str(Path(data) / "htk" / "history")


@dataclass(frozen=True)
class KeptRun:
    """A run of a history: its row of RUNS and what was said of it."""

    row: Facts
    remarks: Remarks

    @property
    def run(self) -> str:
        return str(self.row["run"])

    @property
    def when(self) -> str:
        """The time when the run was recorded, or else added, as text that sorts."""
        return str(self.row["recorded_at"] or self.remarks.added_at)

    @cached_property
    def tags(self) -> dict[str, str]:
        """The run's tags; the commit is that which the recording names, unless a tag does."""
        commit = self.environment.get("git_commit")
        recorded = {"commit": commit[:12]} if commit else {}
        return recorded | dict(self.remarks.tags)

    @cached_property
    def environment(self) -> dict[str, str]:
        """Return what the recording says about its Slurm or Kubernetes job and its commit."""
        try:
            facts = json.loads(self.row["environment"] or "{}")
        except ValueError:
            return {}
        return {str(k): str(v) for k, v in facts.items()} if isinstance(facts, dict) else {}


class History:
    """The runs below an address."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address or default_address()
        self._folder = ObjectFolder(self.address)
        self.unread: list[tuple[str, str]] = []  # files that could not be read, and why

    @property
    def is_kept(self) -> bool:
        """Whether runs were ever added here."""
        return self._folder.exists("runs")

    def add(self, facts: RunFacts, tags: Mapping[str, str]) -> bool:
        """Keep a run and its tags; False if it was there before."""
        for folder in (*_SCHEMAS, "notes"):
            self._folder.make_folder(folder)
        name = f"{facts.run}.parquet"
        there_before = self._folder.exists("runs", name)
        self._put("costs", name, costs_table(facts.costs))
        self._put("summaries", name, facts.summary)
        before = self._remarks_on(facts.run)
        if not before.added_at or any(before.tags.get(k) != v for k, v in tags.items()):
            self._put_note(new_note(facts.run, tags))
        row = {column: [value] for column, value in facts.row.items()}
        # What makes a run one of the history comes last: before, it is not there at all.
        self._put("runs", name, pa.table(row, schema=RUNS))
        return not there_before

    def mark(self, run: str, mark: Mark, tags: Mapping[str, str]) -> None:
        """Say that a run was good or bad."""
        self._put_note(new_note(run, tags, mark))

    @cached_property
    def runs(self) -> list[KeptRun]:
        """All runs, by time."""
        rows = {}
        for run, content in self._read("runs", _FILE).items():
            table = self._unpack_stored("runs", run, content)
            if table is not None and table.num_rows == 1 and table["run"][0].as_py() == run:
                rows[run] = table.to_pylist()[0]
            elif table is not None:
                self.unread.append((f"runs/{run}.parquet", "is not the run that its name says"))
        of_run = self._all_remarks()
        kept = [KeptRun(row, of_run.get(run, Remarks())) for run, row in rows.items()]
        return sorted(kept, key=lambda each: (each.when, each.run))

    def find(self, name: str) -> KeptRun:
        """Return the run of that name, or whose name in the history begins so."""
        chosen = [run for run in self.runs if run.row["name"] == name]
        if len(name) >= 4:
            chosen = [run for run in self.runs if run.run.startswith(name)] or chosen
        if len(chosen) == 1:
            return chosen[0]
        names = ", ".join(run.run[:8] for run in chosen[:5])
        why = f"{len(chosen)} runs are called so: {names}" if chosen else "no run is called so"
        raise UsageError(f"{name!r}: {why}; htk history list names them ({self.address})")

    def costs(self, run: str) -> RecordedBaseline:
        """Return what the steps of a run cost."""
        table = self._read_one("costs", run)
        try:
            return costs_of(table)
        except (ValueError, KeyError, TypeError) as error:
            raise TraceError(
                f"{self.address}: costs/{run}.parquet: {spell_reason(error)}"
            ) from error

    def summary(self, run: str) -> pa.Table:
        """Return the verdict on a run, as `htk summary` gave it."""
        return self._read_one("summaries", run)

    def _read_one(self, folder: str, run: str) -> pa.Table:
        content = self._folder.read(folder, [f"{run}.parquet"])[f"{run}.parquet"]
        try:
            if isinstance(content, Exception):
                raise content
            return unpack_table(content, f"{folder}/{run}.parquet", _SCHEMAS[folder])
        except Exception as error:
            raise TraceError(
                f"{self.address}: {folder}/{run}.parquet: {spell_reason(error)}; add the run again"
            ) from error

    def _read(self, folder: str, pattern: re.Pattern[str]) -> dict[str, bytes]:
        """Return what the objects of a folder hold, by run; what cannot be read is noted."""
        listed = self._folder.listed(folder)
        named = {name: size for name, size in listed.items() if pattern.fullmatch(name)}
        for name in [n for n, size in named.items() if size > _MOST_BYTES[folder]]:
            self.unread.append((f"{folder}/{name}", f"{named.pop(name):,} bytes, too large"))
        contents = {}
        for name, content in self._folder.read(folder, sorted(named)).items():
            if isinstance(content, bytes):
                contents[name.removesuffix(".parquet")] = content
            elif not isinstance(content, FileNotFoundError):
                self.unread.append((f"{folder}/{name}", spell_reason(content)))
        return contents

    def _unpack_stored(self, folder: str, run: str, content: bytes) -> pa.Table | None:
        try:
            return unpack_table(content, f"{folder}/{run}.parquet", _SCHEMAS[folder])
        except Exception as error:  # Arrow's own, and whatever else a damaged file leads to
            self.unread.append((f"{folder}/{run}.parquet", spell_reason(error)))
            return None

    def _all_remarks(self) -> dict[str, Remarks]:
        notes: dict[str, list[tuple[str, Note]]] = defaultdict(list)
        for name, content in self._read("notes", NOTE_NAME).items():
            self._collect(notes, name, content)
        return {run: collect_remarks(of_run) for run, of_run in notes.items()}

    def _remarks_on(self, run: str) -> Remarks:
        names = [name for name in self._folder.listed("notes") if name.startswith(f"{run}.")]
        notes: dict[str, list[tuple[str, Note]]] = defaultdict(list)
        for name, content in self._folder.read("notes", names).items():
            if isinstance(content, bytes) and NOTE_NAME.fullmatch(name):
                self._collect(notes, name, content)
        return collect_remarks(notes[run])

    def _collect(self, notes: dict[str, list[tuple[str, Note]]], name: str, content: bytes) -> None:
        run = name[:16]
        try:
            notes[run].append((name, read_note(content, run)))
        except (ValueError, TypeError) as error:
            self.unread.append((f"notes/{name}", spell_reason(error)))

    def _put(self, folder: str, name: str, table: pa.Table) -> None:
        self._folder.put_bytes(pack_table(table, f"{folder}/{name}"), folder, name)

    def _put_note(self, note: Note) -> None:
        name, content = note.encoded()
        self._folder.put_bytes(content, "notes", name)


def opened_history(address: str | None) -> History:
    """Return the history at an address; UsageError where none is kept."""
    history = History(address)
    if not history.is_kept:
        raise UsageError(
            f"{history.address}: no run was added here; add one with htk history add RUN, or name "
            f"another history with --store or {VARIABLE}"
        )
    return history
