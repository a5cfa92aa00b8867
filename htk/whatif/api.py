"""What-ifs from Python: `htk.whatif(trace).batch(64).sharding("hybrid_shard").run()`."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from htk.graph.build import READS
from htk.output.result import Result
from htk.trace.coverage import coverage
from htk.trace.opening import Inputs, open_trace
from htk.trace.trace import Trace
from htk.whatif.edits import edit
from htk.whatif.label import LABEL, TRAFFIC_LABEL
from htk.whatif.predict import Answer, Baseline, apply_edits, baseline, ordered
from htk.whatif.rates import MFU
from htk.whatif.sweep import bounds, memory_edge, recommended, swept
from htk.whatif.table import DEFAULT, Terms, rows
from htk.whatif.traffic import traffic


@dataclass(frozen=True)
class WhatIf:
    """Edits of a trace's step, collected by name; `run` answers. Each call gives a new one.

    `run()` is a table (its columns are described in `htk.whatif.label.RETURNS`), `answers()` the
    same as objects. Without any edit: what could be won at most, each cause alone.
    """

    trace: Trace
    edits: tuple[tuple[str, str], ...] = ()
    sweeps: tuple[tuple[str, tuple[str, ...]], ...] = ()
    measured_step_ns: int | None = None
    terms: Terms = DEFAULT
    wants_advice: bool = False
    others: tuple[tuple[Trace, float | None], ...] = ()

    @cached_property
    def stage(self) -> Baseline:
        """The untouched step, replayed and judged."""
        return baseline(self.trace.tables, [(t.tables, ratio) for t, ratio in self.others])

    def calibrate_with(self, trace: Trace | Inputs, ratio: float | None = None) -> "WhatIf":
        """One more recording of the same job at another batch: kernels' lengths go through both.

        `ratio`: its micro-batch over that of the first, where shapes do not tell it.
        """
        return replace(self, others=(*self.others, (_opened(trace), ratio)))

    def batch(self, value: int | float | str) -> "WhatIf":
        """Micro-batch: a number, or '2x' the recorded one."""
        return self.change("batch", value)

    def sharding(self, strategy: str) -> "WhatIf":
        """full_shard, shard_grad_op, hybrid_shard[:ranks], ddp."""
        return self.change("sharding", strategy)

    def world(self, ranks: int) -> "WhatIf":
        """Ranks of the job, each with the work that it has now."""
        return self.change("world", ranks)

    def network(self, *, bandwidth: float = 1.0, latency: float = 1.0) -> "WhatIf":
        """Rates of collectives, by a factor."""
        return self.change("network", f"bandwidth={bandwidth:g},latency={latency:g}")

    def change(self, name: str, value: int | float | str = "on") -> "WhatIf":
        """Any edit by its name."""
        edit(name)
        return self._with(replace(self, edits=(*self.edits, (name, str(value)))))

    def sweep(self, name: str, *values: int | float | str) -> "WhatIf":
        """Every value of an edit; several sweeps give every combination."""
        edit(name)
        each = (name, tuple(str(v) for v in values))
        return self._with(replace(self, sweeps=(*self.sweeps, each)))

    def measured(self, step_ns: int) -> "WhatIf":
        """The step as it takes without the profiler."""
        return self._with(replace(self, measured_step_ns=step_ns))

    def economy(self, **terms: float | None) -> "WhatIf":
        """price of a GPU-hour, run_tokens, watts of a GPU, node_hours_between_failures, restart_s,
        checkpoint_s, gpus_per_node: give the cost of tokens and of a run, energy, goodput."""
        return self._with(replace(self, terms=replace(self.terms, **terms)))  # type: ignore[arg-type]

    def recommend(self) -> "WhatIf":
        """What can be done without other hardware, by gain over doubt."""
        return self._with(replace(self, wants_advice=True))

    def answers(self) -> list[Answer]:
        """One for each combination; without any edit, what could be won at most."""
        if self.wants_advice:
            return recommended(self.stage, self.measured_step_ns)
        if not self.edits and not self.sweeps:
            return bounds(self.stage, self.measured_step_ns)
        return swept(self.stage, self.edits, self.sweeps, self.measured_step_ns)

    def run(self) -> Result:
        judged, answers = self.stage.gate, self.answers()
        facts = coverage(self.trace, set(READS)) | {
            "step": self.stage.graph.step,
            "verdict": judged.verdict,
            **judged.figures,
        }
        if rows_are := self._shown:
            facts["rows"] = rows_are
        answered = any(a.step_ns is not None for a in answers)
        if self.stage.memory is not None and answered:
            facts["largest_batch_that_fits"] = memory_edge(self.stage, self.edits)
        table = rows(answers, self.terms)
        if table["mfu_pct"].null_count < table.num_rows:
            facts["mfu"] = MFU
        return Result(LABEL, table, facts)

    @property
    def _shown(self) -> str | None:
        """What the rows are, where no edit says so."""
        if self.wants_advice:
            return "what can be done, most gain for its doubt first"
        return None if self.edits or self.sweeps else "what could be won at most, each cause alone"

    def traffic(self) -> Result:
        """What a rank sends in a step by type, group and scope: as recorded, and predicted."""
        edits = ordered(self.edits)
        edited = None
        if edits and not self.stage.refused:
            edited = apply_edits(self.stage, edits)[0]
        table = traffic(self.stage.model, edited, dict(edits))
        return Result(TRAFFIC_LABEL, table, coverage(self.trace, {"collectives"}))

    def write(self, folder: str | Path) -> list[Path]:
        """The predicted step as trace files, one for each recorded file."""
        from htk.whatif.predicted_trace import write_predicted

        written = write_predicted(self.trace, self.stage, self.edits, Path(folder))
        return [trace_file.file for trace_file in written]

    def _with(self, other: "WhatIf") -> "WhatIf":
        """The same stage: it depends on the trace alone."""
        other.__dict__["stage"] = self.stage
        return other


def whatif(trace: Trace | Inputs) -> WhatIf:
    """What would a step of this trace take if something were changed?"""
    return WhatIf(_opened(trace))


def _opened(trace: Trace | Inputs) -> Trace:
    return trace if isinstance(trace, Trace) else open_trace(trace)
