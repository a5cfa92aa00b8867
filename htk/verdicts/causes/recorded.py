"""What causes are looked for in: the tables of a recording, its replay, and what several share."""

from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa

from htk.base.columns.arrow import read_booleans, read_lengths, read_numbers
from htk.base.core.analysis import Later
from htk.base.core.humanize import format_duration
from htk.physics.detected import Device, common_device
from htk.quantities.measures.collective_calls import CollectiveCalls, with_nccl_facts
from htk.quantities.measures.comm_split import CommShares, kept_split
from htk.verdicts.causes.idle_time import Idle
from htk.verdicts.causes.kernel_work import UnclaimedTime
from htk.verdicts.causes.program import TABLES, RecordedProgram
from htk.verdicts.causes.replayed import ReplayedRecording


class CauseEvidence:
    """The evidence of one recording, made when a cause asks for it."""

    def __init__(
        self, tables: Mapping[str, pa.Table | Later], replayed: ReplayedRecording | None
    ) -> None:
        self._tables = tables
        self.replayed = replayed

    def __getitem__(self, name: str) -> pa.Table:
        table = self._tables[name]
        return table if isinstance(table, pa.Table) else table()

    def later(self, name: str) -> Later:
        return lambda: self[name]

    @cached_property
    def gpus(self) -> int:
        return max(len(self["time_breakdown"]), 1)

    @cached_property
    def window_ns(self) -> int:
        """The recorded windows of all GPUs together."""
        return self.total_ns("total_ns")

    def total_ns(self, column: str) -> int:
        """Return the sum of a column of the breakdown of time."""
        return int(read_numbers(self["time_breakdown"][column]).sum())

    @cached_property
    def steps(self) -> float:
        """How many steps of mean length the window of a GPU holds; 1 where none are marked."""
        windows = self["step_windows"]
        length = read_lengths(windows)
        complete = length[read_booleans(windows["complete"])]
        return (
            self.window_ns / self.gpus / max(float(complete.mean()), 1.0) if len(complete) else 1.0
        )

    def spent(self, total_ns: float) -> str:
        """Return a time of all GPUs together in words: that of one, in a step where there are
        steps."""
        each = format_duration(total_ns / self.gpus / self.steps)
        return each if self.steps == 1.0 else f"{each} a step"

    @cached_property
    def idle(self) -> Idle:
        return Idle.from_costs(self["idle_costs"])

    @cached_property
    def work(self) -> UnclaimedTime:
        return UnclaimedTime(self["kernel_totals"], self["time_breakdown"])

    @cached_property
    def calls(self) -> CollectiveCalls:
        named = with_nccl_facts(self["collectives"], self["collective_facts"])
        return CollectiveCalls.of_one_source(named, self["aligned_matches"], self["ranks"])

    @cached_property
    def split(self) -> CommShares:
        return kept_split(self.calls, self.later("collective_shares"))

    @cached_property
    def device(self) -> Device | None:
        return common_device(self["ranks"])

    @cached_property
    def program(self) -> RecordedProgram:
        return RecordedProgram.from_totals(*(self[name] for name in TABLES))
