"""GPU work itself: activities that are alike, and how much of their time no cause has taken yet.

Each activity gives its recorded time once: what one cause takes is gone for the next.
"""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, match_texts, read_keys, read_numbers
from htk.base.columns.types import Floats, Mask
from htk.base.core.humanize import shorten_text
from htk.base.names.kinds import kind_of
from htk.verdicts.causes.cause import Cause, Example, find_costliest, find_longest
from htk.verdicts.causes.changes import CauseEdit


class UnclaimedTime:
    """GPU activities that are alike, and how much of the time of each no cause has taken yet."""

    def __init__(self, totals: pa.Table, times: pa.Table) -> None:
        self.totals = totals
        self.rank = read_keys(totals["rank"])
        self.calls = read_numbers(totals["count"])
        self.length = read_numbers(totals["total_ns"])
        self.compute = match_texts(totals["kind"], "compute".__eq__)
        self.memory = match_texts(totals["kind"], "memory".__eq__)
        code, names = codes_of(totals["name"])
        self.name = code.astype(np.int64)
        self.names = names.to_pylist()
        # Kernels that run beside one another share the time, and copies beside compute have none.
        self.left = np.zeros(len(self.length))
        for rows, column in ((self.compute, "compute_ns"), (self.memory, "exposed_memory_ns")):
            total = int(self.length[rows].sum())
            there = int(read_numbers(times[column]).sum())
            self.left[rows] = self.length[rows] * min(1.0, there / total if total else 0.0)

    def take(self, rows: Mask, share: Floats | float) -> int:
        """Return a share of the rows' time, which is not there any more."""
        taken = np.where(rows, self.left * share, 0.0)
        self.left = self.left - taken
        return int(taken.sum())

    def has_tensor_cores(self, uses: bool) -> Mask:
        """Return which kernels' names say that they use tensor cores, or that they do not."""
        named = match_texts(self.totals["name"], lambda n: kind_of(n, "kernel").tensor_core is uses)
        return self.compute & named

    def of_families(self, *families: str) -> Mask:
        """Return which kernels are of some families."""
        return self.compute & match_texts(self.totals["family"], lambda f: f in families)

    def cause(
        self,
        rows: Mask,
        recorded_ns: int,
        finding: str,
        evidence: str,
        advice: str,
        analysis: str,
        change: CauseEdit | None,
    ) -> Cause:
        """Return a cause on some activities, with their names and the longest of them."""
        cost = np.where(rows, self.length, 0)
        events = find_costliest(self.names, self.name, cost)
        shown = ", ".join(shorten_text(event) for event in events)
        return Cause(
            finding,
            f"{evidence}: {shown}" if shown else evidence,
            advice,
            recorded_ns,
            analysis,
            events,
            self.example(rows),
            change=change,
            is_bound=True,
        )

    def example(self, rows: Mask) -> Example | None:
        """Return the longest activity of some rows."""
        start = read_numbers(self.totals["longest_start_ns"])[rows]
        length = read_numbers(self.totals["longest_ns"])[rows]
        return find_longest(self.rank[rows], start, start + length)

    def count(self, rows: Mask) -> int:
        """Return how many activities some rows stand for."""
        return int(self.calls[rows].sum())
