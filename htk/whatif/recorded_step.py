"""The recorded step that every answer of one trace starts from, and what was found out of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from htk.base.mappings import NamedTables
from htk.physics.training_job import TrainingJob
from htk.quantities.graph.build import Graph
from htk.quantities.graph.gate import Gate
from htk.quantities.graph.left_out import LeftOut, left_out_of
from htk.quantities.graph.replay import Replay, replay_graph
from htk.whatif.bound_by import launch_bound
from htk.whatif.contention import compute_contention, share_beside_transfers
from htk.whatif.curves import Curves
from htk.whatif.guards import RecordedLoad
from htk.whatif.kept_memory import KeptMemory
from htk.whatif.measured_host import match_measured_step
from htk.whatif.memory import Held
from htk.whatif.missing_ranks import measure_unrecorded_waits
from htk.whatif.rates import Rates, compute_rates
from htk.whatif.recorded_job import recorded_job
from htk.whatif.recorded_memory import read_held_memory
from htk.whatif.served_iteration import ServedIteration, of_server
from htk.whatif.step_model import StepModel


@dataclass(frozen=True)
class Baseline:
    """The recorded step that every answer of one trace starts from."""

    tables: NamedTables
    model: StepModel
    replayed: Replay
    gate: Gate
    curves: Curves | None = None  # from further recordings at other batches
    unrecorded_ns: int = 0  # of a server's recording: waits for what was not recorded, left out
    kept: KeptMemory | None = field(default=None, repr=False, compare=False)
    at_measured_pace: bool = False  # its host is as fast as a step without the profiler tells

    @property
    def graph(self) -> Graph:
        return self.model.graph

    @cached_property
    def contention(self) -> float:
        """The relative slowdown of compute beside communication; 0: none."""
        return compute_contention(self.model)

    @cached_property
    def concurrent_share(self) -> NDArray[np.float64]:
        """The share of each kernel's time with communication beside it."""
        return share_beside_transfers(self.model, self.replayed.time)

    @cached_property
    def waits(self) -> NDArray[np.float64]:
        """The time each collective waited for unrecorded ranks, in ns."""
        return measure_unrecorded_waits(self.model)

    @cached_property
    def alone(self) -> dict[tuple[str, str, int | None], tuple[Mapping[str, float], int]]:
        """The uncertainty and step of single edits already answered, by edit and anchor."""
        return {}

    @cached_property
    def by_measured_step(self) -> dict[int, "Baseline"]:
        """The baselines whose host is as fast as a measured step tells, by that step in ns."""
        return {}

    def match_measured_step(self, measured_ns: int) -> "Baseline":
        """Return the baseline with a host as fast as without the profiler."""
        if measured_ns not in self.by_measured_step:
            model = match_measured_step(self.model, self.replayed.period_ns, measured_ns)
            matched = self
            if model is not self.model:
                replayed = replay_graph(model.graph, model.weight, model.wrap_weight)
                matched = replace(self, model=model, replayed=replayed, at_measured_pace=True)
            self.by_measured_step[measured_ns] = matched
        return self.by_measured_step[measured_ns]

    @cached_property
    def memory_edges(self) -> dict[tuple[tuple[str, str], ...], str | None]:
        """The largest batches that fit, by the edits beside the batch."""
        return {}

    @cached_property
    def job(self) -> TrainingJob:
        """The recorded job, as far as it shows itself."""
        return recorded_job(self.model)

    @cached_property
    def memory(self) -> Held | None:
        """What a training step holds; None: not known, or a server's iteration."""
        return None if self.served is not None else read_held_memory(self.tables, self.model)

    @cached_property
    def left_out(self) -> LeftOut | None:
        """The ranks for which some stand; None: all that were recorded are in the graph."""
        return left_out_of(self.tables)

    @cached_property
    def rates(self) -> Rates:
        return compute_rates(self.tables, self.model)

    @cached_property
    def recorded_load(self) -> RecordedLoad:
        return RecordedLoad(self.model, self.replayed.period_ns)

    @cached_property
    def launch_bound(self) -> bool:
        """Whether the recorded step is as long as its host takes, which the profiler slows down."""
        return launch_bound(self.model, self.replayed.period_ns)

    @cached_property
    def served(self) -> ServedIteration | None:
        """The iteration, where the recording is of an inference server."""
        return of_server(self.tables, self.model.replayed_rows)

    @property
    def facts(self) -> dict[str, object]:
        """Which step is replayed, and how well that goes."""
        facts: dict[str, object] = {"step": self.graph.step, "verdict": self.gate.verdict}
        facts |= self.gate.figures
        if self.graph.is_lone:
            facts["recorded_alone"] = "the step takes what it would if it repeated"
        return facts

    @property
    def step_ns(self) -> int:
        """The duration of the recorded step, in ns; of one recorded alone, or whose host was made
        faster, its replayed period."""
        is_replayed = self.graph.is_lone or self.at_measured_pace
        return self.replayed.period_ns if is_replayed else self.graph.period_ns

    @property
    def refused(self) -> bool:
        return self.gate.verdict.startswith("refused")
