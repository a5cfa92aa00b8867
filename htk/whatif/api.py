"""What-ifs from Python: `htk.whatif(trace).batch(64).sharding("hybrid_shard").run()`."""

import difflib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from htk.answers.output.result import Result
from htk.base.errors import UsageError
from htk.base.mappings import NamedTables
from htk.physics.site_rates import NO_SITE, SiteByGpu
from htk.planning.sites.own_site import site_in_use
from htk.quantities.graph.build import READS
from htk.traces.trace.coverage import describe_coverage
from htk.traces.trace.opening import Inputs, open_trace
from htk.traces.trace.trace import Trace
from htk.whatif.answer import Answer
from htk.whatif.baseline import build_baseline
from htk.whatif.composed_edits import composed_edits
from htk.whatif.edited_job import edited_job, with_own_batch
from htk.whatif.edited_step import apply_edits, order_edits
from htk.whatif.edits import find_edit
from htk.whatif.label import LABEL, TRAFFIC_LABEL
from htk.whatif.predictions import note_prediction, read_prediction
from htk.whatif.rates import MFU
from htk.whatif.recorded_step import Baseline
from htk.whatif.representatives import choose_representatives
from htk.whatif.server_edits import SERVED_ORDER
from htk.whatif.sweep import list_bounds, memory_edge, recommend_edits, sweep_edits
from htk.whatif.table import DEFAULT, Terms, build_answer_rows
from htk.whatif.traffic import build_traffic_table


class SharedBaseline:
    """What all what-ifs of the same recordings start from, made when it is first asked for."""

    def __init__(self, site: SiteByGpu | None = None, *, of_few: bool = False) -> None:
        self.site = site  # None: the user's own, where there is one
        self.of_few = of_few  # of representatives of the ranks
        self.stand_for = ""  # which ranks do, in words
        self._baseline: Baseline | None = None

    def find_baseline(
        self, trace: Trace, others: tuple[tuple[Trace, float | None], ...]
    ) -> Baseline:
        if self._baseline is None:
            recordings = [(t.tables, ratio) for t, ratio in others]
            rates = _own_rates() if self.site is None else self.site
            self._baseline = build_baseline(self._find_tables(trace, others), recordings, rates)
        return self._baseline

    def _find_tables(
        self, trace: Trace, others: tuple[tuple[Trace, float | None], ...]
    ) -> NamedTables:
        if not self.of_few:
            return trace.tables
        if others:
            raise UsageError("representatives are chosen from one recording: give no further ones")
        chosen = choose_representatives(trace)
        self.stand_for = str(chosen)
        return chosen.tables


def _own_rates() -> SiteByGpu:
    here = site_in_use()
    return NO_SITE if here is None else here.site.rates


@dataclass(frozen=True)
class WhatIf:
    """Edits of the recorded step, collected by name; `run()` predicts the step with them.

    Each method returns a new what-if, so that one can branch. Without any edit `run()` returns
    the best-case saving of each cause alone, of a server what `recommend()` does.

    >>> import htk
    >>> base = htk.open("sample").whatif()
    >>> larger = base.batch("2x").run()
    >>> larger["step_time_ns_lo90"][0].as_py() < larger["step_time_ns"][0].as_py()
    True
    """

    trace: Trace
    edits: tuple[tuple[str, str], ...] = ()
    sweeps: tuple[tuple[str, tuple[str, ...]], ...] = ()
    measured_step_ns: int | None = None
    terms: Terms = DEFAULT
    wants_advice: bool = False
    others: tuple[tuple[Trace, float | None], ...] = ()
    shared: SharedBaseline = field(default_factory=SharedBaseline, repr=False, compare=False)
    prior: tuple[tuple[str, str], ...] = ()  # edits of the prediction that this is a what-if of

    if not TYPE_CHECKING:  # a type checker knows the methods by name

        def __getattr__(self, name: str) -> Any:
            near = difflib.get_close_matches(name, [n for n in dir(self) if n[0] != "_"], 3)
            hint = f"; did you mean {', '.join(near)}?" if near and name[0] != "_" else ""
            raise AttributeError(f"a what-if has no {name!r}{hint}")

    @property
    def stage(self) -> Baseline:
        """The recorded step, replayed without edits, and whether the replay is faithful."""
        if not self.prior and (predicted := read_prediction(self.trace)) is not None:
            raise UsageError(f"{predicted}: ask the recording, or htk whatif of this prediction")
        return self.shared.find_baseline(self.trace, self.others)

    @property
    def all_edits(self) -> tuple[tuple[str, str], ...]:
        """The edits of the recording: those of a prediction, and these of it."""
        return composed_edits(self.prior, self.edits) if self.prior else self.edits

    def calibrate_with(self, trace: Trace | Inputs, ratio: float | None = None) -> "WhatIf":
        """Return the what-if calibrated with one more recording of the job at another batch.

        Args:
            trace: the other recording; kernel times are interpolated through both.
            ratio: its micro-batch over that of the first, where shapes do not tell it.

        >>> import htk
        >>> base = htk.open("sample").whatif()
        >>> len(base.calibrate_with("sample", 1.0).others)
        1
        """
        others = (*self.others, (_open_once(trace), ratio))
        return replace(self, others=others, shared=self._start_baseline(self.shared.site))

    def at_site(self, rates: SiteByGpu) -> "WhatIf":
        """Return the what-if with rates that a site measured of its GPUs.

        Args:
            rates: ratios by the catalogue's name of a GPU, as `htk calibrate` keeps them.

        >>> import htk
        >>> from htk.physics.site_rates import SiteRates
        >>> at_home = htk.open("sample").whatif().at_site({"h100": SiteRates(adapters=0.8)})
        >>> at_home.shared.site["h100"].adapters
        0.8
        """
        return replace(self, shared=self._start_baseline(rates))

    def _start_baseline(self, site: SiteByGpu | None) -> SharedBaseline:
        return SharedBaseline(site, of_few=self.shared.of_few)

    def representatives(self) -> "WhatIf":
        """Return the what-if that works with a few ranks which stand for all of the job.

        The others' arrivals at collectives are kept; `run()` says which ranks, and its intervals
        are wider by what that costs.

        >>> import htk
        >>> htk.open("sample").whatif().representatives().batch("2x").run().shape[0]
        1
        """
        return replace(self, shared=SharedBaseline(self.shared.site, of_few=True))

    def batch(self, value: int | float | str) -> "WhatIf":
        """Change the micro-batch.

        Args:
            value: samples a rank takes at once, or a factor such as "2x".

        >>> import htk
        >>> htk.open("sample").whatif().batch("2x").edits
        (('batch', '2x'),)
        """
        return self.change("batch", value)

    def sharding(self, strategy: str) -> "WhatIf":
        """Change how parameters, gradients and optimizer state are sharded.

        Args:
            strategy: full_shard, shard_grad_op, hybrid_shard[:ranks] or ddp.

        >>> import htk
        >>> htk.open("sample").whatif().sharding("ddp").run().shape[0]
        1
        """
        return self.change("sharding", strategy)

    def world(self, ranks: int) -> "WhatIf":
        """Change the number of ranks; each keeps its work.

        Args:
            ranks: ranks of the whole job.

        >>> import htk
        >>> htk.open("sample").whatif().world(8).edits
        (('world', '8'),)
        """
        return self.change("world", ranks)

    def network(self, *, bandwidth: float = 1.0, latency: float = 1.0) -> "WhatIf":
        """Change the network.

        Args:
            bandwidth: factor on the rate of transfers; 2.0 is twice as fast.
            latency: factor on the latency of each collective.

        >>> import htk
        >>> htk.open("sample").whatif().network(bandwidth=2).edits
        (('network', 'bandwidth=2,latency=1'),)
        """
        return self.change("network", f"bandwidth={bandwidth:g},latency={latency:g}")

    def serving(self, **settings: int | float | str) -> "WhatIf":
        """Change how a server answers.

        Args:
            settings: those of `--serving`, e.g. requests="2x", weights="fp8".

        >>> import htk
        >>> htk.open("sample").whatif().serving(requests="2x", kv="fp8").edits
        (('serving', 'requests=2x,kv=fp8'),)
        """
        return self.change("serving", ",".join(f"{name}={v}" for name, v in settings.items()))

    def change(self, name: str, value: int | float | str = "on") -> "WhatIf":
        """Add any edit by its name; `htk whatif --help` lists them.

        Args:
            name: the edit.
            value: its value as on the command line; "on" for edits without one.

        >>> import htk
        >>> htk.open("sample").whatif().change("graphs").edits
        (('graphs', 'on'),)
        """
        find_edit(name)
        return replace(self, edits=(*self.edits, (name, str(value))))

    def sweep(self, name: str, *values: int | float | str) -> "WhatIf":
        """Predict the step for each value of an edit; several sweeps give every combination.

        Args:
            name: the edit.
            values: its values.

        >>> import htk
        >>> htk.open("sample").whatif().sweep("batch", "1x", "2x").run().shape[0]
        2
        """
        find_edit(name)
        each = (name, tuple(str(v) for v in values))
        return replace(self, sweeps=(*self.sweeps, each))

    def measured(self, step_ns: int) -> "WhatIf":
        """State the step time without the profiler, to which predictions are then scaled.

        Args:
            step_ns: the measured step time, in ns.

        >>> import htk
        >>> htk.open("sample").whatif().measured(58_000_000).measured_step_ns
        58000000
        """
        return replace(self, measured_step_ns=step_ns)

    def economy(self, **terms: float | None) -> "WhatIf":
        """State prices and failures; `run()` then returns cost, energy and goodput too.

        Args:
            terms: any of price (of a GPU-hour), run_tokens, watts (of a GPU),
                gpu_mtbf_s (between failures of one GPU), restart_s, checkpoint_s.

        >>> import htk
        >>> htk.open("sample").whatif().economy(price=2.5).terms.price
        2.5
        """
        return replace(self, terms=replace(self.terms, **terms))

    def recommend(self) -> "WhatIf":
        """Rank what can be changed by gain over uncertainty, of a server by tokens of a GPU."""
        return replace(self, wants_advice=True)

    def answers(self) -> list[Answer]:
        """Return the predictions as objects, one for each combination of edits."""
        if self.wants_advice and self.prior:
            raise UsageError("recommendations are of a recording: this is a prediction")
        if self._gives_advice:
            return recommend_edits(self.stage, self.measured_step_ns)
        if not self.all_edits and not self.sweeps:
            return list_bounds(self.stage, self.measured_step_ns)
        return sweep_edits(self.stage, self.edits, self.sweeps, self.measured_step_ns, self.prior)

    def run(self) -> Result:
        """Return the predicted step for each combination of edits, with 50 % and 90 % intervals.

        Times are in ns. Without any edit: the best-case saving of each cause alone, or what a
        server can change.

        >>> import htk
        >>> htk.open("sample").whatif().run()["whatif"][0].as_py()
        'fix_rank all'
        """
        answers = self.answers()
        facts = describe_coverage(self.trace, set(READS)) | self.stage.facts
        if self.measured_step_ns is not None:
            facts.pop("recorded_alone", None)
        if self.shared.stand_for:
            facts["representatives"] = self.shared.stand_for
        if rows_are := self._shown:
            facts["rows"] = rows_are
        answered = any(a.step_ns is not None for a in answers)
        if self.stage.memory is not None and answered:
            facts["largest_batch_that_fits"] = memory_edge(self.stage, self.all_edits)
        table = build_answer_rows(answers, self.terms)
        if table["mfu_pct"].null_count < table.num_rows:
            facts["mfu"] = MFU
        return Result(LABEL, table, facts)

    @property
    def _gives_advice(self) -> bool:
        """Whether changes are tried unasked: of a server also where no edit is given, as it has few
        causes that another way to serve does not take away."""
        if self.wants_advice:
            return True
        return not self.all_edits and not self.sweeps and self.stage.served is not None

    @property
    def _shown(self) -> str | None:
        """Describe the rows where edits do not tell all of them."""
        if self.prior:
            return "the prediction's edits are among these; changes are from its recording"
        if self._gives_advice:
            but = ", without what needs all ranks" if self.shared.of_few else ""
            by_gain = "largest gain for its uncertainty first"
            first = by_gain if self.stage.served is None else SERVED_ORDER
            return f"what can be changed, {first}{but}"
        if self.all_edits or self.sweeps:
            return None
        but = ", but those that need all ranks" if self.shared.of_few else ""
        return f"what could be won at most, each cause alone{but}"

    def traffic(self) -> Result:
        """Return the bytes a rank sends in a step by type, group and scope, recorded and predicted.

        >>> import htk
        >>> "wire_bytes_mean" in htk.open("sample").whatif().traffic().columns
        True
        """
        self._needs_all("what each rank sends")
        edits = order_edits(self.all_edits)
        edited = None
        job = None
        if edits and not self.stage.refused:
            job = edited_job(self.stage.job, edits)
            edited = apply_edits(self.stage, edits)[0]
        table = build_traffic_table(self.stage.model, edited, job)
        return Result(TRAFFIC_LABEL, table, describe_coverage(self.trace, {"collectives"}))

    def _needs_all(self, what: str) -> None:
        if self.shared.of_few:
            raise UsageError(f"{what} is of all ranks: ask without representatives")

    def write(self, folder: str | Path) -> list[Path]:
        """Write the predicted step as trace files, one for each recorded file; return their paths.

        Args:
            folder: where the files go.

        >>> import htk, tempfile
        >>> len(htk.open("sample").whatif().batch("2x").write(tempfile.mkdtemp()))
        2
        """
        from htk.whatif.predicted_trace import write_predicted

        self._needs_all("the predicted trace")
        if self.stage.unrecorded_ns:
            raise UsageError(
                "this recording waits for work that was not recorded, which predictions leave out:"
                " no trace of it can be written"
            )
        edits = order_edits(self.all_edits)
        written = write_predicted(self.trace, self.stage, edits, Path(folder))
        note_prediction(self.trace, with_own_batch(self.stage.job, edits), Path(folder))
        return [trace_file.file for trace_file in written]


def whatif(trace: Trace | Inputs) -> WhatIf:
    """Return a what-if of a recording: add edits, then `run()` it.

    Args:
        trace: a recording from `htk.open`, or whatever `htk.open` takes.

    >>> import htk
    >>> htk.whatif("sample").network(bandwidth=2).run().shape[0]
    1
    """
    return start_whatif(_open_once(trace))


def start_whatif(trace: Trace) -> WhatIf:
    """Return a what-if of a recording; of a prediction, one of its recording with its edits."""
    predicted = read_prediction(trace)
    if predicted is None:
        return WhatIf(trace)
    return WhatIf(predicted.open_recording(), prior=predicted.edits)


def _open_once(trace: Trace | Inputs) -> Trace:
    return trace if isinstance(trace, Trace) else open_trace(trace)
