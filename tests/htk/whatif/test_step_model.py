"""A step as what-ifs change it: lengths, dependencies, groups and times between steps."""

from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest

from htk.physics.detected import detect_gpu
from htk.physics.site_rates import SiteRates
from htk.quantities.graph.replay import replay_graph
from htk.whatif.step_model import StepFacts, StepModel, _per_node, _take_rows
from tests.htk.whatif.small_step_model import Act, comm, length, period, small_model
from tests.tables import make

# a, then b once g is over: 150 + 100
STEP = (
    Act("a", 100),
    Act("b", 100, waits=("g",)),
    comm("g", 150, "all_gather", in_bytes=40, out_bytes=80, group=2, per_node=2),
    comm("r", 30, "reduce_scatter", waits=("a",), in_bytes=90, out_bytes=45, group=2, per_node=2),
)


def of(model: StepModel, *names: str) -> np.ndarray:
    acts = model.graph.activities
    return np.array([acts.names[n] in names for n in acts.name.tolist()])


def test_lengths_of_some_activities() -> None:
    model = small_model(STEP[:3])
    longer = model.with_lengths(of(model, "a", "g"), np.array([200.4, -7.0, 60.6]))
    assert [length(longer, name) for name in "abg"] == [200, 100, 61]
    assert period(longer) == 300
    assert [length(model, name) for name in "abg"] == [100, 100, 150], "the first is as it was"
    none = model.with_lengths(of(model, "b"), -5)
    assert length(none, "b") == 0, "nothing takes less than no time"


def test_without_the_wait_both_run_at_once() -> None:
    model = small_model(STEP[:3])
    assert period(model) == 250
    waits = model.graph.edges("event")
    assert waits.sum() == 1
    assert period(model.without(waits)) == 200


def test_times_between_steps_add_up() -> None:
    model = small_model(STEP[:3])
    later = model.add_step_time("wait", 40.4, exposed=10, idle=5).add_step_time("wait", 20)
    later = later.add_step_time("copies", 7, idle=7)
    assert period(later) == period(model) + 40 + 20 + 7
    assert later.added == {"wait": 60, "copies": 7}
    assert (later.added_exposed, later.added_idle) == (10, 12)


def test_the_worst_uncertainty_of_a_cause_stays_until_the_next_edit() -> None:
    model = small_model(STEP).with_uncertainty("compute", 0.1).with_uncertainty("compute", 0.05)
    model = model.with_uncertainty("host", 0.2).with_assumption("first").with_assumption("second")
    assert model.spread == {"compute": 0.1, "host": 0.2}
    fresh = replace(model, low_confidence=True).fresh()
    assert (dict(fresh.spread), fresh.low_confidence) == ({}, False)
    assert fresh.assumptions == ("first", "second")
    assert (fresh.weight_before == model.weight).all()


def test_groups_of_eight_share_the_same_whole() -> None:
    """A gather hands in an eighth of its whole, a scatter keeps one; others stay as they are."""
    model = small_model(STEP)
    wider = model.with_groups(of(model, "g", "r"), 8, 4).facts
    gather, scatter = np.flatnonzero(of(model, "g"))[0], np.flatnonzero(of(model, "r"))[0]
    assert (wider.in_bytes[gather], wider.out_bytes[gather]) == (10, 80)
    assert (wider.in_bytes[scatter], wider.out_bytes[scatter]) == (90, 11)
    assert wider.crosses.tolist() == of(model, "g", "r").tolist()
    alone = model.with_groups(of(model, "g"), 8, 4).facts
    assert (alone.group_size[scatter], alone.per_node[scatter]) == (2, 2)
    assert not model.facts.crosses.any()


def test_new_edges_take_over_the_uncertainty_of_those_they_are_like() -> None:
    model = small_model(STEP[:3])
    many = len(model.weight)
    sigma = np.arange(many, dtype=float)
    model = replace(model, edge_sigma={("compute", "a"): sigma}, touched={"batch": sigma > 2})
    order = np.arange(many + 2)[::-1]
    more, like = np.array([7, 9]), np.array([3, -1])
    changed = model.rewired(model.graph, more, order, like)
    assert changed.weight.tolist() == [9, 7, *model.weight[::-1].tolist()]
    assert changed.weight_before.tolist() == [0, 0, *model.weight[::-1].tolist()]
    assert changed.edge_sigma["compute", "a"].tolist() == [0, 3, *sigma[::-1].tolist()]
    assert changed.touched["batch"].tolist() == [False, True, *(sigma > 2)[::-1].tolist()]


def test_what_facts_tell_is_found_once_for_the_same_activities() -> None:
    model, made = small_model(STEP), []
    edited = model.with_lengths(of(model, "a"), 1)
    for asked in (model, edited, model):
        assert asked.once("answer", lambda: made.append(0) or len(made)) == 1
    other = replace(model, graph=replace(model.graph, activities=replace(model.graph.activities)))
    assert other.once("answer", lambda: 2) == 2, "of other activities another answer"


def test_the_gpu_is_the_recorded_one_until_an_edit_asks_for_another() -> None:
    model = small_model(STEP, device_name="NVIDIA A100-SXM4-80GB")
    rates = {"h100": SiteRates(products=0.5)}
    model = replace(model, site=rates)
    assert model.device is not None and model.device.name == "a100-80gb"
    assert model.site_rates(model.device) == model.site_rates(None) == SiteRates()
    other = replace(model, gpu="NVIDIA H100 80GB HBM3")
    assert other.device == detect_gpu("NVIDIA H100 80GB HBM3")
    assert other.site_rates(other.device) == rates["h100"]


def test_kinds_of_activities() -> None:
    model = small_model([*STEP, Act("copy", 5, lane="copies", kind="memory")])
    assert model.is_compute.tolist() == of(model, "a", "b").tolist()
    assert model.is_comm.tolist() == of(model, "g", "r").tolist()
    assert model.is_collective("all_gather", "all_reduce").tolist() == of(model, "g").tolist()
    assert replay_graph(model.graph, model.weight, model.wrap_weight).period_ns == pytest.approx(
        250
    )


@pytest.mark.parametrize(
    ("gpus", "members"), [(4, [4, 2, 3, 1, 4, 3, 0]), (8, [6, 2, 3, 2, 8, 3, 0]), (0, [0] * 7)]
)
def test_members_of_a_group_in_its_fullest_node(gpus: int, members: list[int]) -> None:
    """By the ranks that it lists; else as many as fit. Where nodes are not known, nothing is."""
    groups = [
        ("[0, 1, 2, 3, 4, 5]", 6), ("[0, 1, 8]", 3), ("[1, 2, 3]", 3), ("[0, 7]", 2), (None, 16),
        (None, 3), (None, None),
    ]  # fmt: skip
    listed = [{"group_ranks": ranks, "group_size": size} for ranks, size in groups]
    assert _per_node(make("collectives", listed), gpus).tolist() == [*members, 0]


def test_values_of_rows_and_of_none() -> None:
    assert _take_rows(np.array([5, 7]), np.array([1, -1, 0])).tolist() == [7, -1, 5]


def test_gradients_are_what_runs_below_their_sum() -> None:
    """DDP's hook copies a gradient into its bucket; what AddBackward does is no such thing."""
    engine = "autograd::engine::evaluate_function: "
    calls = [  # operator, the row of the one round it
        (f"{engine}torch::autograd::AccumulateGrad", -1),
        ("torch::autograd::AccumulateGrad", 0),
        ("aten::mul", 1),
        (f"{engine}MmBackward0", -1),
        ("aten::mul", 3),
        ("aten::add_", 1),
    ]
    launched_by = [4, 2, None, 5, 3]

    def coded(names: list[str]) -> pa.Array:
        return pa.array(names).dictionary_encode()

    tables = {
        "cpu_ops": pa.table({"name": coded([name for name, _ in calls])}),
        "op_links": pa.table({"parent_row": [row if row >= 0 else None for _, row in calls]}),
        "kernel_links": pa.table({"op_row": pa.array(launched_by, pa.int64())}),
    }
    some = small_model([Act("a", 1)]).facts
    given = {f.name: getattr(some, f.name) for f in fields(StepFacts)}
    rows = np.array([1, 0, 2, 3, 4])
    facts = StepFacts(**(given | {"tables": tables, "rows": rows}))
    assert facts.of_gradients.tolist() == [True, False, False, True, False]
    others = tables | {"cpu_ops": pa.table({"name": coded(["aten::mul"] * len(calls))})}
    assert not StepFacts(**(given | {"tables": others, "rows": rows})).of_gradients.any()
