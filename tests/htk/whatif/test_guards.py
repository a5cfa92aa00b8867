"""A prediction that passes a physical bound is refused, and the bound named."""

from dataclasses import replace

import numpy as np
import pytest

from htk.physics.detected import detect_gpu
from htk.quantities.graph.replay import NEVER, replay_graph
from htk.whatif import predict as predicting
from htk.whatif.baseline import build_baseline
from htk.whatif.edits import replace as kernels
from htk.whatif.guards import RecordedLoad, find_violation
from htk.whatif.predict import predict_answer
from htk.whatif.rates import Rates
from htk.whatif.step_model import StepModel
from tests.htk.quantities.graph.small_step import step_tables
from tests.htk.whatif.small_step_model import Act, comm, small_model

GB = 10**9
UNKNOWN = Rates(2, None, None, None)


def step() -> StepModel:
    """1 ms of compute, then 4 ms in which a rank sends 1.75 GB of 300 GB/s: 437 GB/s."""
    size = {"group": 8, "per_node": 8, "in_bytes": GB, "out_bytes": GB}
    acts = [
        Act("a", 1_000_000),
        Act("b", 1_000_000),
        comm("c", 8_000_000, "all_reduce", waits=("a",), **size),
    ]
    return small_model(acts, device_name="NVIDIA A100-SXM4-80GB")


def judged(edited: StepModel, period: int, rates: Rates = UNKNOWN) -> str | None:
    now = replay_graph(step().graph).period_ns
    return find_violation(RecordedLoad(step(), now), edited, period, (now, period), rates)


def test_a_step_is_never_shorter_than_a_stream_is_busy() -> None:
    assert judged(step(), 9_000_000) is None
    # communication needs 8 ms on its stream
    assert judged(step(), 8_000_000) is None
    assert "guard stream" in (judged(step(), 7_000_000) or "")


def test_links_carry_no_more_than_their_rate() -> None:
    faster = step().with_lengths(step().is_comm, 1)
    # 2 * 7/8 of a GB at 300 GB/s: 5.8 ms
    assert judged(faster, 6_000_000) is None
    assert "guard links" in (judged(faster, 5_000_000) or "")


@pytest.mark.parametrize(("times", "guard"), [(2, None), (3, None), (4, "guard roofline")])
def test_compute_is_never_faster_than_the_peak(times: int, guard: str | None) -> None:
    # of 2 ms of compute in 9 ms: 30 % of the peak
    rates = Rates(1, None, 0.6e9, 1e12)
    changed = kernels.apply(step(), f"a|b={times}x")
    found = judged(changed, 9_000_000, rates)
    assert (found is None) if guard is None else (found is not None and guard in found)


def test_a_step_does_no_more_than_the_peak() -> None:
    only = small_model([Act("a", 1_000_000)])
    rates = Rates(1, None, 0.6e9, 1e12)  # 0.6 ms at the peak
    half = kernels.apply(only, "a=2x")
    assert (
        find_violation(RecordedLoad(only, 1_000_000), only, 1_000_000, (1_000_000,) * 2, rates)
        is None
    )
    found = find_violation(
        RecordedLoad(only, 1_000_000), half, 500_000, (1_000_000, 500_000), rates
    )
    assert found is not None and found.startswith("guard mfu: MFU would be 120%")


def test_where_flops_are_not_known_no_peak_is_passed() -> None:
    """Sequences of another length: attention's FLOPs no longer grow with the tokens."""
    only = small_model([Act("a", 1_000_000)])
    rates = Rates(1, None, 0.6e9, 1e12)  # 0.6 ms at the peak
    half = kernels.apply(only, "a=2x")
    for work, guard in ((1.0, "guard mfu"), (0.5, None), (float("nan"), None)):
        edited = replace(half, work=work)
        found = find_violation(
            RecordedLoad(only, 1_000_000), edited, 500_000, (1_000_000, 500_000), rates
        )
        assert (found or "none").startswith(guard or "none"), work


def test_a_recording_that_passes_a_bound_says_nothing_of_predictions() -> None:
    only = small_model([Act("a", 1_000_000)])
    wrong = Rates(1, None, 1.2e9, 1e12)  # a peak that is too low
    assert (
        find_violation(RecordedLoad(only, 1_000_000), only, 1_000_000, (1_000_000,) * 2, wrong)
        is None
    )


def test_the_answer_is_refused_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    start = build_baseline(step_tables(4))
    monkeypatch.setattr(predicting, "find_violation", lambda *_: "guard stream: …")
    found = predict_answer(start, [("host", "2x")])
    assert found.step_ns is None and found.verdict.startswith("refused: guard stream")


def test_adapters_of_a_node_carry_no_more_than_their_rate() -> None:
    """Two of four GPUs of each node: they have half of its adapters, of 25 GB/s for each GPU."""
    size = {"group": 8, "per_node": 2, "in_bytes": GB, "out_bytes": GB}
    acts = [Act("a", 1_000_000), comm("c", 90_000_000, "all_reduce", waits=("a",), **size)]
    model = small_model(acts, gpus_per_node=4, device_name="NVIDIA A100-SXM4-80GB")
    faster = model.with_lengths(model.is_comm, 1)
    now = replay_graph(model.graph).period_ns

    def found(period: int) -> str | None:
        return find_violation(RecordedLoad(model, now), faster, period, (now, period), UNKNOWN)

    gpu = detect_gpu("NVIDIA A100-SXM4-80GB")
    assert gpu is not None
    least = 2 * 7 / 8 * GB / (gpu.scale_out_gbps * 4 * 2 / 4)  # ns
    assert found(round(least * 1.001)) is None
    assert "guard links" in (found(round(least * 0.99)) or "")


def test_streams_whose_neighbours_overlap_are_as_busy_as_recorded() -> None:
    """Two kernels of 1 ms, the second from 0.6 ms on: 1.6 ms of 2. A stream beside is full."""
    model = small_model([Act("a", 1_000_000), Act("b", 1_000_000), Act("i", 500_000, lane="io")])
    acts = model.graph.activities
    start = np.where(acts.lane == 0, [0, 600_000, 0], acts.start)
    early = replace(acts, start=start, end=start + acts.length)
    model = replace(model, graph=replace(model.graph, activities=early))
    load = RecordedLoad(model, 2_000_000)
    assert load.busy_share.tolist() == [0.8, 1.0]
    assert load.carried.stream == pytest.approx(0.8)
    assert load.carried.compute == pytest.approx(2.5 / 2)


def test_what_is_added_to_a_step_is_no_time_in_which_it_computes() -> None:
    """2 ms of compute in 5, of which 1 was added: half of the other 4."""
    model = small_model([Act("a", 2_000_000)]).add_step_time("skew", 1_000_000)
    assert RecordedLoad(model, 5_000_000).carried.compute == pytest.approx(0.5)
    shorter = small_model([Act("a", 2_000_000)]).add_step_time("skew", -1_000_000)
    assert RecordedLoad(shorter, 5_000_000).carried.compute == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("samples", "devices", "guard"),
    [(2.0, 2.0, None), (2.0, 1.0, "mfu"), (4.0, 2.0, "mfu"), (4.0, 4.0, None)],
)
def test_work_is_of_a_gpu(samples: float, devices: float, guard: str | None) -> None:
    """0.6 ms at the peak in 1 ms: twice the samples of a GPU do not fit."""
    only = small_model([Act("a", 1_000_000)])
    edited = replace(only, samples=samples, devices=devices)
    rates = Rates(1, None, 0.6e9, 1e12)
    load = RecordedLoad(only, 1_000_000)
    words = find_violation(load, edited, 1_000_000, (1_000_000,) * 2, rates)
    assert (words or "guard none").split()[1].rstrip(":") == (guard or "none")


def test_what_no_longer_happens_is_on_no_link() -> None:
    model = step()
    edge = model.run_edge[model.is_comm]
    gone = replace(model, weight=np.where(np.arange(len(model.weight)) == edge[0], NEVER, 0))
    assert RecordedLoad(gone, 1_000).carried.links == 0
    assert RecordedLoad(model, 9_000_000).carried.links == pytest.approx(1.75e9 / 300 / 9e6)
