"""A step as what-ifs see it: its graph, its weights, and what is known of each activity."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import codes_of, read_booleans, read_keys, read_numbers
from htk.base.columns.coded_texts import CodedTexts
from htk.base.columns.types import NONE, Floats, Ints, Mask, fill_none, take_or
from htk.base.mappings import NamedTables
from htk.physics.detected import detect_gpu, list_devices
from htk.physics.hardware import Gpu
from htk.physics.link_rates import scale_up_gbps
from htk.physics.site_rates import NO_SITE, SiteByGpu, SiteRates
from htk.quantities.graph.build import Graph
from htk.quantities.graph.left_out import left_out_of
from htk.quantities.graph.nodes import Activities, collective_rows
from htk.quantities.graph.replay import NEVER
from htk.quantities.measures.passes import is_backward
from htk.whatif.served_iteration import ServedIteration
from htk.whatif.tiles import count_waves

_T = TypeVar("_T")
_SUMS_GRADIENTS = re.compile("AccumulateGrad")
_DEEPEST = 32  # calls from autograd's to the operator that launches


@dataclass(frozen=True)
class StepFacts:
    """The recorded facts of each activity of the graph."""

    tables: NamedTables
    rows: Ints  # in `kernels`
    family: CodedTexts
    dims: CodedTexts  # shapes of the operator that launched it
    op: CodedTexts
    collective: CodedTexts  # its type, for communication
    group_kind: CodedTexts  # what its group is for, as the job describes it
    in_bytes: Ints  # -1: unknown
    out_bytes: Ints
    group_size: Ints
    per_node: Ints  # members of its group in one node; 0: unknown
    blocks: Floats  # waves that it filled: blocks ÷ what the GPU holds at once; NaN: unknown
    persistent: Mask  # its blocks take several tiles, and share them evenly
    single: Mask  # communication whose peers are unrecorded
    gpus_per_node: int  # 0: unknown
    scale_up_gbps: float | None  # links of a GPU within its node, one way, from the catalogue

    @property
    def crosses(self) -> Mask:
        """Which activities are communication of a group with members in several nodes."""
        return (self.per_node > 0) & (self.per_node < self.group_size)

    @cached_property
    def kept(self) -> dict[str, tuple[Activities, Ints | None, Any]]:
        """The answers that `StepModel.once` keeps, each with the activities and lengths it was made
        from."""
        return {}

    @cached_property
    def op_row(self) -> Ints:
        """The operator that launched each, in `cpu_ops`; -1: none."""
        return read_keys(self.tables["kernel_links"]["op_row"])[self.rows]

    @cached_property
    def of_gradients(self) -> Mask:
        """Which activities work on the gradients of parameters: what autograd runs to sum these up,
        and hooks of it such as DDP's, which copies them into buckets."""
        ops = self.tables["cpu_ops"]
        links = self.tables["op_links"]
        sums = CodedTexts.taken(ops["name"], np.arange(ops.num_rows)).where(_SUMS_GRADIENTS.search)
        parent = np.append(read_keys(links["parent_row"]), -1)
        row = self.op_row
        inside = np.zeros(len(self.rows), bool)
        for _ in range(_DEEPEST if sums.any() else 0):
            inside |= take_or(sums, row, False)
            row = parent[row]
        return inside

    @cached_property
    def recorded_members(self) -> Ints:
        """On how many ranks each collective was recorded, where some of these are left out; 0: it
        is none, or those of the graph are all."""
        if left_out_of(self.tables) is None:
            return np.zeros(len(self.rows), np.int64)
        recorded = np.flatnonzero(self.rows >= 0)
        members = np.zeros(len(self.rows), np.int64)
        present = read_numbers(self.tables["collective_matches"]["members_present"], 0)
        members[recorded] = take_or(present, collective_rows(self.tables, self.rows[recorded]), 0)
        return members

    @cached_property
    def backward(self) -> Mask:
        """Which activities the backward pass launched."""
        return is_backward(self.tables["kernel_passes"])[self.rows]

    @cached_property
    def recomputed(self) -> Mask:
        """Which activities are forward work that is done again for the backward pass."""
        return read_booleans(self.tables["kernel_passes"]["recomputed"])[self.rows]

    @cached_property
    def module(self) -> CodedTexts:
        """The `nn.Module` around each operator, where recorded."""
        return CodedTexts.taken(self.tables["op_callers"]["module"], self.op_row)

    @cached_property
    def grid(self) -> CodedTexts:
        """The blocks that each kernel was launched with."""
        return CodedTexts.taken(self.tables["kernels"]["grid"], self.rows)

    @cached_property
    def types(self) -> CodedTexts:
        """The types of the operator's inputs, where recorded."""
        return CodedTexts.taken(self.tables["cpu_ops"]["input_types"], self.op_row)

    @cached_property
    def device_name(self) -> str | None:
        """The name of the first GPU that has one."""
        return next((n for n in self.tables["ranks"]["device_name"].to_pylist() if n), None)

    @cached_property
    def device(self) -> Gpu | None:
        """The catalogue's entry for the first GPU that it knows."""
        return next((d.gpu for d in list_devices(self.tables["ranks"]) if d.gpu), None)


@dataclass(frozen=True)
class StepModel:
    graph: Graph
    facts: StepFacts
    weight: Ints
    wrap_weight: Ints
    samples: float = 1.0  # times the samples of the recorded step
    devices: float = 1.0  # times the GPUs
    activation_scale: float = 1.0  # times what a GPU keeps of a micro-batch for its backward pass
    token_scale: float = 1.0  # times the tokens of a micro-batch, as batch and length change them
    length_scale: float = 1.0  # times the length of a sequence, in the mean
    before_tokens: "StepModel | None" = None  # the step before its tokens were changed
    site: SiteByGpu = field(default_factory=dict)  # what a site measured of its GPUs
    gpu: str | None = None  # the GPU that an edit asked for, as its driver names it
    number_format: str | None = None  # of matrix products, that an edit asked for
    peak: float = 1.0  # times the peak rate of a GPU
    work: float = 1.0  # times the model FLOPs of a sample; NaN: not known
    links: float = 1.0  # times the rate of a GPU's links
    parallel: int = 0  # ranks of data parallelism, where collectives no longer tell
    served: ServedIteration | None = None  # a server's iteration that an edit asked for
    tensor: int = 0  # ranks of tensor parallelism that an edit asked for; 0: as recorded
    arrival_scale: float = 1.0  # times how late unrecorded ranks come
    added: Mapping[str, int] = field(default_factory=dict)  # ns to the step as a whole, by cause
    added_exposed: float = 0.0  # ns of that in which communication is exposed, mean over GPUs
    added_idle: float = 0.0  # and in which a GPU is idle
    assumptions: tuple[str, ...] = ()
    # Of the current edit, by cause: one standard deviation, relative to what it displaces.
    spread: Mapping[str, float] = field(default_factory=dict)
    low_confidence: bool = False
    weight_before: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # that edit
    # Of the edits so far: ns of each edge, by cause and the model that is in common; of the
    # logarithm of the step, by cause; edges that each edit changed.
    edge_sigma: Mapping[tuple[str, str], Floats] = field(default_factory=dict)
    step_sigma: Mapping[str, float] = field(default_factory=dict)
    touched: Mapping[str, Mask] = field(default_factory=dict)
    unexplained: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # ns of each edge
    # The lengths that some weights make, which may be those of now; None: not looked at.
    known_lengths: tuple[Ints, Ints] | None = field(default=None, repr=False, compare=False)

    def once(self, what: str, make: Callable[[], _T], *, of_lengths: bool = False) -> _T:
        """Return what activities and facts tell, whatever edits make of times; found out once.

        Who asks must not write to it. `of_lengths`: it depends on lengths too; what was found last
        holds for as long as no edit changes them.
        """
        weight = self.weight if of_lengths else None
        activities, lengths, answer = self.facts.kept.get(what, (None, None, None))
        if activities is not self.graph.activities or lengths is not weight:
            answer = make()
            self.facts.kept[what] = self.graph.activities, weight, answer
        return cast("_T", answer)

    @property
    def replayed_rows(self) -> Ints | None:
        """The rows of `kernels` in the step; None: the recording has no steps, and all is in it."""
        cycles = self.facts.tables["rank_windows"]["cycle"].unique()
        return None if self.graph.step is None and len(cycles) < 2 else self.facts.rows

    # Edges that edits change.

    @property
    def run_edge(self) -> Ints:
        """The edge that holds each activity's length; -1: none."""
        return self.graph.run_edge

    @cached_property
    def changed_edges(self) -> Ints:
        """The edges that have other weights than those of the graph, which are as recorded."""
        if self.weight is self.graph.weight:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.weight != self.graph.weight)

    def lengths(self) -> Ints:
        """Return each activity's current length, in ns; for a joined collective its transfer."""
        if self.known_lengths is not None and self.known_lengths[0] is self.weight:
            return self.known_lengths[1]
        return self._lengths

    @cached_property
    def _lengths(self) -> Ints:
        length = np.where(self.run_edge >= 0, self.weight[self.run_edge], 0)
        length.flags.writeable = False  # many share it
        return length

    def with_lengths(
        self, activities: Mask, length: NDArray[np.floating] | Ints | int
    ) -> "StepModel":
        """Return the model with other lengths for some activities."""
        chosen = np.flatnonzero(activities & (self.run_edge >= 0))
        wanted = np.broadcast_to(np.asarray(length), activities.shape)[chosen]
        new = np.rint(np.maximum(wanted, 0)).astype(np.int64)
        weight = self.weight.copy()
        lengths = self.lengths().copy()
        weight[self.run_edge[chosen]] = lengths[chosen] = new
        lengths.flags.writeable = False
        return replace(self, weight=weight, known_lengths=(weight, lengths))

    def without(self, edges: Mask) -> "StepModel":
        """Return the model without some dependencies."""
        return replace(self, weight=np.where(edges, NEVER, self.weight))

    def fresh(self) -> "StepModel":
        """Return the model as the next edit takes it: nothing is uncertain of it yet."""
        return replace(self, spread={}, low_confidence=False, weight_before=self.weight)

    def rewired(self, graph: Graph, more: Ints, order: Ints, like: Ints) -> "StepModel":
        """Return the model with another graph, whose edges are those of now and more, in an order.

        `like`: the edge whose uncertainty each new one takes over; -1: none.
        """
        many = len(self.weight)
        none = np.zeros(1)

        def carry_values(values: Floats | Ints | Mask) -> Any:
            return np.append(values, np.append(values, none)[like])[order].astype(values.dtype)

        before = self.weight_before if len(self.weight_before) == many else self.weight
        unexplained = carry_values(self.unexplained) if len(self.unexplained) else self.unexplained
        return replace(
            self,
            graph=graph,
            weight=np.append(self.weight, more)[order],
            weight_before=np.append(before, np.zeros(len(more), np.int64))[order],
            edge_sigma={key: carry_values(sigma) for key, sigma in self.edge_sigma.items()},
            touched={name: carry_values(mask) for name, mask in self.touched.items()},
            unexplained=unexplained,
        )

    def with_groups(self, collectives: Mask, size: int, per_node: int) -> "StepModel":
        """Return the model with other groups for some collectives, each rank's part as large."""
        facts = self.facts
        gathers = collectives & self.is_collective("all_gather") & (facts.out_bytes > 0)
        scatters = collectives & self.is_collective("reduce_scatter") & (facts.in_bytes > 0)
        facts = replace(
            facts,
            in_bytes=np.where(gathers, facts.out_bytes // size, facts.in_bytes),
            out_bytes=np.where(scatters, facts.in_bytes // size, facts.out_bytes),
            group_size=np.where(collectives, size, facts.group_size),
            per_node=np.where(collectives, per_node, facts.per_node),
        )
        return replace(self, facts=facts)

    @property
    def device_name(self) -> str | None:
        return self.gpu or self.facts.device_name

    @property
    def device(self) -> Gpu | None:
        """The catalogue's entry for the GPU of the step: the recorded one, or an edit's."""
        return detect_gpu(self.gpu) if self.gpu else self.facts.device

    def site_rates(self, gpu: Gpu | None) -> SiteRates:
        """Return what the site measured of a GPU."""
        return SiteRates() if gpu is None else self.site.get(gpu.name, SiteRates())

    def add_step_time(
        self, cause: str, ns: float, *, exposed: float = 0.0, idle: float = 0.0
    ) -> "StepModel":
        """Return the model with a time between its steps, and what GPUs do in it.

        Communication is exposed for so many ns of it, GPUs idle for so many; else they compute.
        """
        much = round(ns)
        return replace(
            self,
            wrap_weight=self.wrap_weight + much,
            added={**self.added, cause: self.added.get(cause, 0) + much},
            added_exposed=self.added_exposed + exposed,
            added_idle=self.added_idle + idle,
        )

    def with_assumption(self, *words: str) -> "StepModel":
        return replace(self, assumptions=self.assumptions + words)

    def with_uncertainty(self, cause: str, sigma: float) -> "StepModel":
        """Return the model with at least this uncertainty of how much a cause changes: one standard
        deviation, relative."""
        worst = max(sigma, self.spread.get(cause, 0.0))
        return replace(self, spread={**self.spread, cause: worst})

    def is_collective(self, *types: str) -> Mask:
        return self.facts.collective.isin(*types)

    @property
    def is_comm(self) -> Mask:
        return np.asarray(self.graph.activities.kind == 1)

    @property
    def is_compute(self) -> Mask:
        return np.asarray(self.graph.activities.kind == 0)


def step_model(tables: NamedTables, graph: Graph, site: SiteByGpu = NO_SITE) -> StepModel:
    facts = _build_facts(tables, graph)
    model = StepModel(
        graph, facts, graph.weight, graph.wrap_weight, site=site, unexplained=graph.unexplained
    )
    return replace(model, known_lengths=(model.weight, model.lengths()))


def _build_facts(tables: NamedTables, graph: Graph) -> StepFacts:
    kernels = tables["kernels"]
    links = tables["kernel_links"]
    ops = tables["cpu_ops"]
    rows = graph.activities.row
    op = read_numbers(links["op_row"], NONE)[rows]
    comm = tables["collectives"]
    index = collective_rows(tables, rows)
    size = read_numbers(comm["group_size"], NONE)
    dims = CodedTexts.taken(ops["input_dims"], op)
    waves, persistent = count_waves(
        CodedTexts.taken(kernels["name"], rows),
        dims,
        CodedTexts.taken(kernels["grid"], rows),
        read_numbers(kernels["blocks_per_sm"], np.nan)[rows].astype(np.float64),
    )
    alone = np.asarray(graph.activities.kind == 1) & (_find_edges_into(graph, "transfer") < 0)
    gpus = int(read_numbers(tables["ranks"]["device_count"], 0).max(initial=0))
    return StepFacts(
        tables=tables,
        rows=rows,
        family=CodedTexts.taken(kernels["family"], rows),
        dims=dims,
        op=CodedTexts.taken(ops["name"], op),
        collective=CodedTexts.taken(comm["type"], index),
        group_kind=CodedTexts.taken(comm["group_desc"], index),
        in_bytes=_take_rows(read_numbers(comm["in_bytes"], NONE), index),
        out_bytes=_take_rows(read_numbers(comm["out_bytes"], NONE), index),
        group_size=_take_rows(size, index),
        per_node=_per_node(comm, gpus)[index],
        blocks=waves,
        persistent=persistent,
        single=alone,
        gpus_per_node=gpus,
        scale_up_gbps=_find_link_rate(tables["ranks"]),
    )


def _per_node(collectives: pa.Table, gpus: int) -> Ints:
    """Return the members of each group in its fullest node; a last one stands for no collective."""
    size = read_keys(collectives["group_size"])
    codes, listed = codes_of(collectives["group_ranks"])
    most = [0]
    for text in listed.to_pylist():  # a few groups
        nodes = Counter(int(r) // gpus for r in json.loads(text or "[]")) if gpus else Counter()
        most.append(max(nodes.values(), default=0))
    fullest = np.array([*most[1:], 0], np.int64)[codes]
    guessed = np.minimum(size, gpus) if gpus else np.zeros(len(size), np.int64)
    return np.append(np.where(fullest > 0, fullest, np.maximum(guessed, 0)), 0)


def _find_edges_into(graph: Graph, kind: str) -> Ints:
    edge = fill_none(len(graph.time))
    own = np.flatnonzero(graph.edges(kind))
    edge[graph.dst[own]] = own
    return edge[graph.end]


def _find_link_rate(ranks: pa.Table) -> float | None:
    gpu = next((d.gpu for d in list_devices(ranks) if d.gpu), None)
    if gpu:
        return gpu.scale_up_gbps
    names = [name for name in ranks["device_name"].to_pylist() if name]
    return scale_up_gbps(names[0]) if names else None


def _take_rows(values: Ints, rows: Ints) -> Ints:
    return take_or(values, rows).astype(np.int64)
