"""A trace: the files of all ranks as one set of tables, made when first asked for."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from htk import derive
from htk.arrow import boolean, constant_text, matching, number, numbers, truths, valid
from htk.errors import MissingTable, UsageError
from htk.intervals import Spans, union
from htk.recording import hint
from htk.schema import ABSOLUTE_TIMES, DERIVED, TABLES, TEXT, index_of
from htk.store import Entry
from htk.units import spans_of, time

Mask = NDArray[np.bool_]

_ROW_BY_ROW = ("collective_matches", "aligned_matches", "collective_facts")


@dataclass(frozen=True)
class Part:
    """One file: whose it is, and its tables."""

    entry: Entry
    file: str
    rank: int | None
    cycle: int
    rank_from: str = ""
    first_event: int = 0  # added to `event`: cycles of one rank continue the count
    format: str = ""
    file_bytes: int | None = None
    duplicates: tuple[str, ...] = ()  # other files of this rank and time, left out

    def table(self, name: str) -> pa.Table:
        """A table of the vocabulary with its rank and cycle; empty where the file has none."""
        if name == "ranks":
            return self._who()
        if name == "parse_issues" and self.duplicates:
            return pa.concat_tables([self._table(name), self._duplicate_issues()])
        return self._table(name)

    def _table(self, name: str) -> pa.Table:
        schema = TABLES[name] if name in TABLES else DERIVED[name]
        own = self.entry.tables.get(name) if name in TABLES else self._derived(name)
        if own is None:
            return schema.empty_table()
        return pa.table([self._column(own, f) for f in schema], schema=schema)

    def _who(self) -> pa.Table:
        """The file's row of `ranks`."""
        row = dict(self.entry.parsed.facts) | {
            "rank": self.rank,
            "cycle": self.cycle,
            "rank_from": self.rank_from,
            "file": self.file,
            "format": self.format,
            "file_bytes": self.file_bytes,
        }
        schema = TABLES["ranks"]
        return pa.Table.from_pylist([row], schema=schema)

    def _duplicate_issues(self) -> pa.Table:
        rows = [
            {
                "rank": self.rank,
                "cycle": self.cycle,
                "file": other,
                "kind": "duplicate_rank",
                "text": f"recorded the same time as {self.file}; left out",
                "count": 1,
            }
            for other in self.duplicates
        ]
        return pa.Table.from_pylist(rows, schema=TABLES["parse_issues"])

    def _derived(self, name: str) -> pa.Table:
        made = derive.maker(name)
        return self.entry.derived(
            name, lambda: made.function(*(self._own(read) for read in made.reads))
        )

    def _own(self, name: str) -> pa.Table:
        """A table as the file has it, without rank and cycle."""
        if name in TABLES:
            own = self.entry.tables.get(name)
            return TABLES[name].empty_table() if own is None else own
        return self._derived(name)

    def _column(self, own: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
        if field.name in own.column_names and field.name != "cycle":
            column = own[field.name]
            if field.name in ("event", "op_event") and self.first_event:
                column = pc.add(column, self.first_event)
            return column
        length = own.num_rows
        if field.name == "rank":
            known = None if self.rank is not None else np.zeros(length, bool)
            return number(np.full(length, self.rank or 0), pa.int32(), known)
        if field.name == "cycle":
            return number(np.full(length, self.cycle), pa.int32())
        if field.name == "file":
            return constant_text(self.file, length)
        if field.type == TEXT:
            return constant_text(None, length)
        return pa.nulls(length, field.type)


@dataclass(frozen=True)
class Selection:
    """What of the trace is looked at. Times are ns since the trace began."""

    ranks: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    annotation: str | None = None

    @property
    def narrows(self) -> bool:
        """Whether it leaves out part of a rank."""
        return any(x is not None for x in (self.steps, self.from_ns, self.to_ns, self.annotation))


class Tables(Mapping[str, pa.Table]):
    """The vocabulary's tables by name, over all ranks of a trace."""

    def __init__(self, trace: "Trace") -> None:
        self._trace = trace
        self._made: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._made:
            self._made[name] = self._trace._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        yield from TABLES
        yield from derive.NAMES

    def __len__(self) -> int:
        return len(TABLES) + len(derive.NAMES)


@dataclass(frozen=True)
class Trace:
    """Files of one run, and what of them is looked at."""

    parts: tuple[Part, ...]
    selection: Selection = Selection()
    unread: tuple[str, ...] = ()  # files of the folder that no parser knows
    failed: tuple[tuple[str, str], ...] = ()  # recognised files that could not be read, and why

    @cached_property
    def tables(self) -> Tables:
        return Tables(self)

    @property
    def ranks(self) -> list[int]:
        """Ranks at hand, in order."""
        return sorted({p.rank for p in self._parts if p.rank is not None})

    @cached_property
    def origin_ns(self) -> int:
        """When the first event of any rank started, whichever are looked at."""
        starts = pc.min(self._everyone._whole("ranks")["start_ns"]).as_py()
        if starts is None:  # NCCL's own records
            starts = pc.min(self._everyone._whole("collectives")["start_ns"]).as_py()
        return int(starts or 0)

    def sel(
        self,
        *,
        ranks: Sequence[int] | None = None,
        steps: Sequence[int] | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        annotation: str | None = None,
    ) -> Self:
        """The same trace, narrowed: nothing is computed until a table is asked for."""
        if from_ns is not None and to_ns is not None and from_ns >= to_ns:
            raise UsageError(f"from {time(from_ns)} to {time(to_ns)}: ends before it begins")
        if annotation is not None:
            _pattern(annotation)
        now = self.selection
        chosen = Selection(
            now.ranks if ranks is None else frozenset(ranks),
            now.steps if steps is None else frozenset(steps),
            now.from_ns if from_ns is None else from_ns,
            now.to_ns if to_ns is None else to_ns,
            now.annotation if annotation is None else annotation,
        )
        return replace(self, selection=chosen)

    def need(self, name: str) -> pa.Table:
        """A table that must hold rows."""
        found = self.tables[name]
        if not found.num_rows:
            files = self.parts[0].file if len(self.parts) == 1 else f"{len(self.parts)} files"
            if self.emptied(name):
                raise MissingTable(f"{files}: no rows in {name!r} within {self._chosen()}")
            raise MissingTable(f"{files}: no rows in {name!r}; it needs {hint(name)}")
        return found

    def emptied(self, name: str) -> bool:
        """Whether it is the selection that leaves nothing of a table."""
        return not self.tables[name].num_rows and bool(self._everyone.tables[name].num_rows)

    def check_selection(self) -> None:
        """Ranks and steps that are not there at all are a mistake, and no empty answer."""
        chosen = self.selection
        if chosen.ranks is not None and self._everyone.ranks and not self.ranks:
            raise MissingTable(f"nothing within {self._chosen()}")
        if chosen.steps is not None and not chosen.steps & self._known_steps:
            raise MissingTable(f"nothing within {self._chosen()}")

    @cached_property
    def _known_steps(self) -> set[int]:
        whole = self._everyone
        columns = [whole.tables[n]["step"] for n in ("annotations", "kernel_links", "op_links")]
        return {s for column in columns for s in column.unique().to_pylist()} - {None}

    def _chosen(self) -> str:
        """The selection in words, beside what there is to choose from."""
        chosen, said = self.selection, []
        if chosen.ranks is not None:
            said.append(
                f"ranks {spans_of(list(chosen.ranks))} (of {spans_of(self._everyone.ranks)})"
            )
        if chosen.steps is not None:
            known = spans_of(list(self._known_steps)) or "none"
            said.append(f"steps {spans_of(list(chosen.steps))} (of {known})")
        if chosen.from_ns is not None:
            said.append(f"times from {time(chosen.from_ns)} on")
        if chosen.to_ns is not None:
            said.append(f"times up to {time(chosen.to_ns)}")
        if chosen.annotation is not None:
            said.append(f"user ranges called {chosen.annotation!r}")
        return ", ".join(said)

    def relative(self, name: str) -> pa.Table:
        """A table with its times counted from the first event of the trace."""
        found = self.tables[name]
        for place, field in enumerate(found.schema):
            if field.name in ABSOLUTE_TIMES:
                found = found.set_column(
                    place, field, pc.subtract(found.column(place), self.origin_ns)
                )
        return found

    @property
    def _parts(self) -> list[Part]:
        wanted = self.selection.ranks
        return [p for p in self.parts if wanted is None or p.rank is None or p.rank in wanted]

    def _make(self, name: str) -> pa.Table:
        whole = self._whole(name)
        if not self.selection.narrows:
            return whole
        return self._narrowed(name, whole)

    def _whole(self, name: str) -> pa.Table:
        if name in DERIVED and derive.maker(name).over_ranks:
            return self._of_chosen_ranks(name, self._everyone._over_ranks(name))
        schema = TABLES.get(name) or DERIVED.get(name)
        if schema is None:
            raise MissingTable(f"no table {name!r}; there are {', '.join([*TABLES, *DERIVED])}")
        tables = self._of_parts(name)
        tables = self._renumbered(schema, tables)
        if not tables:
            return schema.empty_table()
        if len(tables) == 1:
            return tables[0]
        return pa.concat_tables(tables).unify_dictionaries()  # one code for a name, of any rank

    @cached_property
    def _everyone(self) -> "Trace":
        """The same trace whole: what is made over ranks is made of all, whoever is looked at."""
        return self if self.selection == Selection() else replace(self, selection=Selection())

    @cached_property
    def _made_over_ranks(self) -> dict[str, pa.Table]:
        return {}

    def _over_ranks(self, name: str) -> pa.Table:
        if name not in derive.OVER_RANKS:
            return self._whole(name)
        if name not in self._made_over_ranks:
            made = derive.maker(name)
            table = made.function(*(self._over_ranks(read) for read in made.reads))
            self._made_over_ranks[name] = table
        return self._made_over_ranks[name]

    def _of_chosen_ranks(self, name: str, table: pa.Table) -> pa.Table:
        wanted = self.selection.ranks
        if wanted is None:
            return table
        if "rank" in table.column_names:
            return table.filter(pa.array(np.isin(numbers(table["rank"], -1), list(wanted))))
        looked_at = {id(part) for part in self._parts}
        chosen = [  # a row for each collective, in the order of the files
            np.full(part.table("collectives").num_rows, id(part) in looked_at)
            for part in self._everyone.parts
        ]
        return table.filter(pa.array(np.concatenate([np.empty(0, bool), *chosen])))

    def _of_parts(self, name: str) -> list[pa.Table]:
        """A table of each file; what has to be made is made side by side."""
        parts = self._parts
        if name in TABLES or len(parts) < 2:
            return [part.table(name) for part in parts]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return list(pool.map(lambda part: part.table(name), parts))

    def _renumbered(self, schema: pa.Schema, tables: list[pa.Table]) -> list[pa.Table]:
        """Row numbers of one file become row numbers of all."""
        for place, field in enumerate(schema):
            target = index_of(field)
            if not target or len(tables) < 2:
                continue
            before = 0
            for k, part in enumerate(self._parts):
                if before:
                    moved = pc.add(tables[k].column(place), before)
                    tables[k] = tables[k].set_column(place, field, moved)
                own = part.entry.tables.get(target)
                before += 0 if own is None else own.num_rows
        return tables

    # What a selection keeps of a table. Time tables keep all activities and narrow the windows;
    # kernel tables keep what the selection launched; operators are marked, not dropped, so that
    # row numbers of `cpu_ops` hold.

    def _narrowed(self, name: str, whole: pa.Table) -> pa.Table:
        if name in ("kernels", "kernel_links"):
            return whole.filter(pa.array(self._chosen_kernels))
        if name == "op_links":
            chosen = boolean(self._chosen_ops)
            place = whole.schema.get_field_index("selected")
            return whole.set_column(place, whole.schema.field(place), chosen)
        if name in ("rank_windows", "step_windows"):
            return self._narrow_windows(whole, name == "step_windows")
        if name in ("collectives", *_ROW_BY_ROW):
            return whole.filter(pa.array(self._chosen_collectives))
        return self._chosen_steps(whole) if name == "annotations" else whole

    def _chosen_steps(self, annotations: pa.Table) -> pa.Table:
        """Steps that are not chosen are ranges without a number; row numbers hold."""
        chosen, step = self.selection, annotations["step"]
        keep = valid(step)
        if chosen.steps is not None:
            keep &= np.isin(numbers(step, -1), list(chosen.steps))
        if chosen.from_ns is not None:
            keep &= numbers(annotations["end_ns"]) > self.origin_ns + chosen.from_ns
        if chosen.to_ns is not None:
            keep &= numbers(annotations["start_ns"]) < self.origin_ns + chosen.to_ns
        place = annotations.schema.get_field_index("step")
        field = annotations.schema.field(place)
        return annotations.set_column(place, field, number(numbers(step, -1), field.type, keep))

    @cached_property
    def _chosen_kernels(self) -> Mask:
        links, kernels = self._whole("kernel_links"), self._whole("kernels")
        keep = self._in_steps(links)
        keep &= self._in_time(numbers(kernels["start_ns"]))
        if self.selection.annotation is not None:
            keep &= self._in_ranges(kernels["rank"], numbers(links["launch_start_ns"], -1))
        return keep

    @cached_property
    def _chosen_ops(self) -> Mask:
        ops = self._whole("cpu_ops")
        start = numbers(ops["start_ns"])
        keep = self._in_steps(self._whole("op_links")) & self._in_time(start)
        if self.selection.annotation is not None:
            keep &= self._in_ranges(ops["rank"], start)
        return keep

    @cached_property
    def _chosen_collectives(self) -> Mask:
        """Those whose GPU activity is chosen; records without one by time alone."""
        rows = self._whole("collectives")
        kernels = self._whole("kernels")
        ours = _event_keys(kernels.filter(pa.array(self._chosen_kernels)))
        from_profile = matching(rows["source"], "kineto".__eq__)
        keys = _event_keys(rows)
        on_gpu = np.isin(keys, _event_keys(kernels))
        by_time = self._in_time(numbers(rows["start_ns"], -1))
        return np.where(from_profile & on_gpu, np.isin(keys, ours), by_time)

    def _in_steps(self, links: pa.Table) -> Mask:
        if self.selection.steps is None:
            return np.ones(links.num_rows, bool)
        return np.isin(numbers(links["step"], -1), list(self.selection.steps))

    def _in_time(self, start: NDArray[np.int64]) -> Mask:
        keep = np.ones(len(start), bool)
        if self.selection.from_ns is not None:
            keep &= start >= self.origin_ns + self.selection.from_ns
        if self.selection.to_ns is not None:
            keep &= start < self.origin_ns + self.selection.to_ns
        return keep

    def _in_ranges(self, rank: pa.ChunkedArray, at: NDArray[np.int64]) -> Mask:
        """Inside a user range whose name matches, on the same rank, whichever thread."""
        keep = np.zeros(len(at), bool)
        ranks = numbers(rank, -1)
        for which, spans in self._ranges().items():  # one rank after the other
            mine = np.flatnonzero(ranks == which)
            place = np.searchsorted(spans.start, at[mine], side="right") - 1
            keep[mine] = (place >= 0) & (at[mine] < spans.end[np.maximum(place, 0)])
        return keep

    def _ranges(self, *, on_gpu: bool = False) -> dict[int, Spans]:
        """Where the chosen user ranges lie, for each rank."""
        wanted = _pattern(self.selection.annotation or "")
        table = self._whole("annotations")
        mine = matching(table["name"], lambda n: bool(wanted.search(n)))
        mine &= truths(table["on_gpu"]) == on_gpu
        ranks = numbers(table["rank"], -1)
        start, end = numbers(table["start_ns"]), numbers(table["end_ns"])
        return {
            int(r): union(start[mine & (ranks == r)], end[mine & (ranks == r)])
            for r in np.unique(ranks[mine])
        }

    def _narrow_windows(self, whole: pa.Table, by_step: bool) -> pa.Table:
        if self.selection.steps is not None:
            steps = self._whole("step_windows")
            steps = steps.filter(pc.is_in(steps["step"], pa.array(sorted(self.selection.steps))))
            whole = steps if by_step else _joined(steps)
        start, end = numbers(whole["start_ns"]), numbers(whole["end_ns"])
        pieces = np.arange(len(start))
        if self.selection.annotation is not None:
            pieces, start, end = self._cut_to_ranges(numbers(whole["rank"], -1), start, end)
        if self.selection.from_ns is not None:
            start = np.maximum(start, self.origin_ns + self.selection.from_ns)
        if self.selection.to_ns is not None:
            end = np.minimum(end, self.origin_ns + self.selection.to_ns)
        keep = end > start
        cut = whole.take(pa.array(pieces[keep]))
        for name, values in (("start_ns", start[keep]), ("end_ns", end[keep])):
            place = cut.schema.get_field_index(name)
            cut = cut.set_column(place, cut.schema.field(place), number(values, pa.int64()))
        return cut

    def _cut_to_ranges(
        self, rank: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Windows cut to where the chosen ranges' GPU work runs."""
        spans = self._ranges(on_gpu=True) or self._launched_spans()
        rows, starts, ends = [], [], []
        for k in range(len(start)):  # a few windows
            mine = spans.get(int(rank[k]))
            if mine is None:
                continue
            low, high = np.maximum(mine.start, start[k]), np.minimum(mine.end, end[k])
            keep = high > low
            rows.append(np.full(int(keep.sum()), k))
            starts.append(low[keep])
            ends.append(high[keep])
        empty = np.empty(0, np.int64)
        return (
            np.concatenate([*rows, empty]).astype(np.int64),
            np.concatenate([*starts, empty]),
            np.concatenate([*ends, empty]),
        )

    def _launched_spans(self) -> dict[int, Spans]:
        """Without GPU copies of ranges: from first start to last end of what each launched."""
        kernels, links = self._whole("kernels"), self._whole("kernel_links")
        at = numbers(links["launch_start_ns"], -1)
        ranks = numbers(kernels["rank"], -1)
        start, end = numbers(kernels["start_ns"]), numbers(kernels["end_ns"])
        found = {}
        for which, spans in self._ranges().items():  # one rank after the other
            place = np.searchsorted(spans.start, at, side="right") - 1
            mine = (ranks == which) & (place >= 0) & (at < spans.end[np.maximum(place, 0)])
            low = np.full(len(spans.start), np.iinfo(np.int64).max)
            high = np.full(len(spans.start), np.iinfo(np.int64).min)
            np.minimum.at(low, place[mine], start[mine])
            np.maximum.at(high, place[mine], end[mine])
            found[which] = union(low[high > low], high[high > low])
        return found


def _pattern(annotation: str) -> re.Pattern[str]:
    try:
        return re.compile(annotation)
    except re.error as error:
        raise UsageError(f"annotation {annotation!r} is no regular expression: {error}") from None


def _joined(steps: pa.Table) -> pa.Table:
    """Neighbouring step windows of a device as one window without a number."""
    order = [("rank", "ascending"), ("cycle", "ascending"), ("device", "ascending")]
    steps = steps.sort_by([*order, ("start_ns", "ascending")])
    who = np.stack([numbers(steps[c], -1) for c in ("rank", "cycle", "device")])
    start, end = numbers(steps["start_ns"]), numbers(steps["end_ns"])
    if not len(start):
        return steps
    new = np.append(True, (who[:, 1:] != who[:, :-1]).any(axis=0) | (start[1:] != end[:-1]))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(start)) - 1
    joined = steps.take(pa.array(first))
    made = {
        "end_ns": number(end[last], pa.int64()),
        "step": pa.nulls(len(first), pa.int32()),
    }
    for name, column in made.items():
        place = joined.schema.get_field_index(name)
        joined = joined.set_column(place, joined.schema.field(place), column)
    return joined


def _event_keys(table: pa.Table) -> NDArray[np.int64]:
    """(rank, event) as one number."""
    rank = numbers(table["rank"], -1).astype(np.int64)
    return np.asarray((rank << 40) + numbers(table["event"], -1))
