"""Findings on waiting in collectives: for whom, and what that rank was late in."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.analysis import Later
from htk.base.core.humanize import format_duration
from htk.quantities.derived.explained_idle import device_pieces
from htk.quantities.derived.own_time import KINDS, beyond, fastest_member, own_time
from htk.quantities.derived.stalls import LONG_NS
from htk.quantities.derived.unrecorded import unrecorded_ranks
from htk.quantities.measures.blame import blame, parts_of
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.comm_split import CommShares, kept_split
from htk.quantities.measures.common_steps import Compute
from htk.verdicts.causes.advice.finding import Advice, Example, mostly
from htk.verdicts.causes.advice.idle import finding_of
from htk.verdicts.causes.advice.start_up import START_UP, StartUpWaits, start_up_waits

LATE = "ranks wait for late ranks"
UNEVEN = "ranks wait for a rank that computes longer"
SLOW_GPU = "ranks wait for a slow GPU"
UNDETERMINED = "exposed communication: wait or transfer, cannot be told"
_SLOWER_PCT = 3.0  # the same kernels beyond the other GPUs; less is the spread of good ones
COMPUTE, COMM = KINDS.index("compute"), KINDS.index("comm")
_HOST = len(KINDS)  # the kind of own time after those


@dataclass(frozen=True)
class BlamedWaits:
    """Exposed waiting, by who is late by its own time: a row for each cause of others' waits."""

    row: Ints  # of `collectives`: that of the rank that was late
    rank: Ints
    held_up: Mask  # not by its own time, nor for a rank that was: by slow transfers
    wait_ns: Ints  # exposed, of all others, there and in collectives of ranks that it held up
    kind: Ints  # what it was late in: KINDS, then the host; NONE: not known
    finding: list[str]  # on idle time that explains it; "": none
    whole_ns: int  # exposed waiting, with what no late member is known for
    unrecorded_ns: int  # waiting for ranks before their recording, for what nothing recorded tells

    def without(self, rows: Mask) -> "BlamedWaits":
        """Return the waits that another finding does not stand for already."""
        kept = [f for f, gone in zip(self.finding, rows.tolist(), strict=True) if not gone]
        row, rank, wait, kind = (c[~rows] for c in (self.row, self.rank, self.wait_ns, self.kind))
        whole_ns = self.whole_ns - int(self.wait_ns[rows].sum())
        held_up = self.held_up[~rows]
        return BlamedWaits(row, rank, held_up, wait, kind, kept, whole_ns, self.unrecorded_ns)

    def with_start_up(self, waits: "StartUpWaits") -> "BlamedWaits":
        """Return these and the waits for ranks whose start-up goes on; what others wait before a
        rank's recording begins is no matter of being late."""
        count = len(waits.row)
        return BlamedWaits(
            np.append(self.row, waits.row),
            np.append(self.rank, waits.rank),
            np.append(self.held_up, np.zeros(count, bool)),
            np.append(self.wait_ns, waits.wait_ns),
            np.append(self.kind, np.full(count, _HOST)),
            [*self.finding, *[START_UP] * count],
            self.whole_ns - waits.unrecorded_ns,
            waits.unrecorded_ns,
        )


@dataclass(frozen=True)
class Exposed:
    """Collectives, and their exposed time."""

    calls: CollectiveCalls
    split: CommShares

    @classmethod
    def of(
        cls, collectives: pa.Table, matches: pa.Table, ranks: pa.Table, shares: Later
    ) -> "Exposed":
        calls = CollectiveCalls.of_one_source(collectives, matches, ranks)
        return cls(calls, kept_split(calls, shares))

    def waits(self, own_times: Later, idle_causes: Later, stalls: pa.Table) -> BlamedWaits:
        """Return what others waited because of each late rank, and what it was late in."""
        rows, match = self.calls.rows, self.calls.match
        exposed = np.zeros(rows.length, np.int64)
        exposed[self.split.rows] = self.split.exposed_wait
        blames = blame(self.calls, own_times)
        late = np.flatnonzero(blames.late & blames.on_all_ranks)
        matched = np.flatnonzero(match != NONE)
        members = Groups.by_keys(match[matched])
        of_match = np.zeros(rows.length, np.int64)
        of_match[matched] = members.sum(exposed[matched])[members.group_ids]
        traced = blames.cause[late] != NONE
        beyond_limit = np.where(traced, blames.beyond_limit(match, exposed)[late], 0)
        wait = of_match[late] - exposed[late] - beyond_limit
        causes = np.append(np.where(traced, blames.cause[late], late), late[beyond_limit > 0])
        first, of_first = np.unique(causes, return_inverse=True)
        kind, finding = self._reasons(first, own_times, idle_causes)
        of_cause = np.zeros(len(first), np.int64)
        np.add.at(of_cause, of_first, np.append(wait, beyond_limit[beyond_limit > 0]))
        held_up = ~blames.blamed[first]
        whole_ns = int(exposed.sum())
        blamed = BlamedWaits(first, rows.rank[first], held_up, of_cause, kind, finding, whole_ns, 0)
        return blamed.with_start_up(start_up_waits(self.calls, exposed, stalls))

    def _reasons(self, late: Ints, own_times: Later, idle_causes: Later) -> tuple[Ints, list[str]]:
        """Return what each late rank was late in: where it spent most beyond the fastest one."""
        own = own_time(self.calls.rows, self.calls.table)
        fastest = fastest_member(own, self.calls.match, self.calls.waits.has_wait)
        excess = beyond(parts_of(self.calls, own_times), fastest)[late]
        some = excess.max(axis=1, initial=0) > 0
        kind = np.where(some, excess.argmax(axis=1), NONE)
        if not (kind == _HOST).any():
            return kind, [""] * len(late)
        pieces = device_pieces(idle_causes())
        code, causes = codes_of(pieces["cause"])
        long = numbers(pieces["end_ns"]) - numbers(pieces["start_ns"]) >= LONG_NS
        findings = [finding_of(c, n) for n in (False, True) for c in causes.to_pylist()]
        names = sorted(set(findings) - {""})
        number = np.array([names.index(f) if f else NONE for f in findings] + [NONE], np.int64)
        of_piece = number[np.where(code >= 0, code + long * len(causes), NONE)]
        if not names:
            return kind, [""] * len(late)
        spent = own.spent_in(pieces, [of_piece == k for k in range(len(names))])
        most = beyond(spent, fastest)[late]
        best = np.where(most.max(axis=1) > 0, most.argmax(axis=1), NONE)
        chosen = np.where(kind == _HOST, best, NONE)
        return kind, [names[k] if k >= 0 else "" for k in chosen.tolist()]

    def waits_by_finding(self, waits: BlamedWaits) -> dict[str, tuple[int, str]]:
        """Return what ranks wait for those whose idle time has a finding, and in words for whom."""
        by_finding = {}
        named = np.array(waits.finding, object)
        for finding in sorted(set(waits.finding) - {""}):
            rows = named == finding
            total = int(waits.wait_ns[rows].sum())
            if total:
                by_finding[finding] = (total, self._in_words(waits, rows))
        return by_finding

    def _in_words(self, waits: BlamedWaits, rows: Mask) -> str:
        total = int(waits.wait_ns[rows].sum())
        who = self._whom(waits, rows)
        return f"other ranks wait {format_duration(total)} in all for it{who}"

    def late_findings(self, waits: BlamedWaits, slowness: Mapping[int, float]) -> list[Advice]:
        """Findings on waiting for ranks that are late in anything but their host."""
        findings = []
        idle = np.array([bool(f) for f in waits.finding], bool)
        compute = ~idle & (waits.kind == COMPUTE)
        blamed = Groups.by_keys(waits.rank[compute])
        cost = blamed.sum(waits.wait_ns[compute])
        slow = {r for r in blamed.keys[:, 0].tolist() if slowness.get(r, 0.0) >= _SLOWER_PCT}
        on_slow = compute & np.isin(waits.rank, list(slow))
        if cost.sum():
            findings += self._late_in_compute(waits, on_slow, compute & ~on_slow, slowness)
        rest = ~idle & ~compute
        blamed_ns = int(waits.wait_ns.sum())
        total = int(waits.wait_ns[rest].sum()) + waits.whole_ns - blamed_ns
        if total > 0:
            late_in = [f"in {k}" for k in KINDS] + ["on the host"]
            own = rest & ~waits.held_up
            kinds = np.bincount(waits.kind[own & (waits.kind >= 0)], minlength=len(late_in))
            what = f", late {late_in[int(kinds.argmax())]}" if kinds.any() else ""
            findings.append(
                Advice(
                    LATE,
                    f"{self._share(total)} is waiting{self._whom(waits, own)}{what}",
                    "balance the work (tokens, images, pipeline stages) and look at the late "
                    f"rank's host{self._no_links}",
                    total,
                    "stragglers",
                    example=self._example(waits, rest),
                )
            )
        return findings

    def _late_in_compute(
        self, waits: BlamedWaits, on_slow: Mask, uneven: Mask, slowness: Mapping[int, float]
    ) -> list[Advice]:
        findings = []
        if on_slow.any():
            ranks = sorted(set(waits.rank[on_slow].tolist()))
            slow = ", ".join(f"rank {r} {slowness[r]:.0f} %" for r in ranks[:4])
            findings.append(
                Advice(
                    SLOW_GPU,
                    f"the same kernels take longer there: {slow}; "
                    f"{self._share(int(waits.wait_ns[on_slow].sum()))} is waiting for them",
                    "look at clocks, power limit, temperature and other processes there "
                    f"(nvidia-smi -q -d PERFORMANCE, rocm-smi), or leave it out{self._no_links}",
                    int(waits.wait_ns[on_slow].sum()),
                    "gpu_speed",
                    example=self._example(waits, on_slow),
                )
            )
        cost = int(waits.wait_ns[uneven].sum())
        if cost:
            who = self._whom(waits, uneven)
            findings.append(
                Advice(
                    UNEVEN,
                    f"{self._share(cost)} is waiting for compute of others{who}",
                    "equal work for all ranks: sequence lengths, experts, layers of a pipeline's "
                    f"stages{self._no_links}",
                    cost,
                    "stragglers",
                    example=self._example(waits, uneven),
                )
            )
        return findings

    def _whom(self, waits: BlamedWaits, rows: Mask) -> str:
        return mostly(waits.rank[rows], waits.wait_ns[rows], "for rank", self.calls.rows.rank)

    @property
    def _no_links(self) -> str:
        return "" if self.calls.undetermined.any() else "; faster links would not help"

    def _share(self, cost: int) -> str:
        total = int(self.split.exposed.sum())
        return f"{100 * cost / max(total, 1):.0f} % of exposed communication"

    def _example(self, waits: BlamedWaits, rows: Mask) -> Example | None:
        """Return the collective that was waited in longest."""
        if not rows.any():
            return None
        row = int(waits.row[rows][waits.wait_ns[rows].argmax()])
        table = self.calls.rows
        return Example(int(table.rank[row]), int(table.start[row]), int(table.end[row]))

    def undetermined_findings(self, ranks: pa.Table) -> list[Advice]:
        """Time in collectives that may be waiting or transfer: what to do depends on which."""
        gain = int(self.split.exposed_undetermined.sum())
        if not gain:
            return []
        missing = unrecorded_ranks(ranks)
        here = len(set(ranks["rank"].drop_null().to_pylist()))
        why = (
            f"{missing} of {missing + here} ranks missing"
            if missing
            else ("no match on other ranks")
        )
        return [
            Advice(
                UNDETERMINED,
                f"{self._share(gain)}; {why}",
                "record all ranks of a few steps: what helps depends on which of the two it is",
                gain,
                "comm_wait",
            )
        ]


def uneven_compute(times: Compute, least_pct: float) -> list[Advice]:
    """Return the ranks that compute longer than others, where nothing tells who waits for them."""
    rank, compute, where = times
    mean = int(compute.mean()) if len(compute) else 0
    if not mean:
        return []
    busiest = int(compute.argmax())
    over = int(compute[busiest]) - mean
    if 100.0 * over < least_pct * mean:
        return []
    return [
        Advice(
            "ranks compute unequally",
            f"{where}rank {rank[busiest]} computes {format_duration(int(compute[busiest]))}, the "
            f"mean is {format_duration(mean)}, the least {format_duration(int(compute.min()))}",
            "equal work for all ranks: sequence lengths, experts, pipeline stages; how fast each "
            "GPU runs the same kernels tells a slow one from more work",
            over * len(compute),
            "gpu_speed",
            overlaps="any time in which others wait for that rank",
        )
    ]
