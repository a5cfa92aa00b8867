"""Standard deviations of clocks: equal ones are left alone, those that are off are found."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from htk.quantities.derived.clock_fit import Ends, fit_clocks
from htk.quantities.derived.clock_sigma import standard_errors
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.thinned import thinned

BASE_NS = 1_700_000_000_000_000_000
FEW_SHORT_GROUPS = {"layers": 3, "seq": 128, "nodes": 2, "gpus_per_node": 2, "micro_batch": 2}


def simulated(folder: Path, **more: object) -> Trace:
    config = {"model": "gpt3-126m", "steps": 2, "strategy": "hybrid_shard", "stacks": False}
    simulate_job(check_config(Config(**(config | more))), folder)  # type: ignore[arg-type]
    return open_trace(folder, OpenOptions(cache=False))


@pytest.mark.parametrize(
    "seeds", [(2,), pytest.param((10, 13, 33, 141, 205, 300), marks=pytest.mark.nightly)]
)
def test_equal_clocks_are_left_alone_over_seeds(seeds: tuple[int, ...], tmp_path: Path) -> None:
    """Seeds whose ends happen to lie unevenly are among them."""
    for seed in seeds:
        trace = simulated(tmp_path, **FEW_SHORT_GROUPS, seed=seed)
        assert not any(trace.tables["rank_clocks"]["aligned"].to_pylist()), seed
        shutil.rmtree(tmp_path)


@pytest.mark.parametrize(("offset_us", "steps"), [(10_000.0, 2), (100.0, 2), (5.0, 6)])
def test_offsets_are_found_in_a_small_job(offset_us: float, steps: int, tmp_path: Path) -> None:
    more = {"clock_offset_us": offset_us, "seed": 3, "steps": steps, "nodes": 4}
    trace = simulated(tmp_path, **(FEW_SHORT_GROUPS | more))
    assert all(trace.tables["rank_clocks"]["aligned"].to_pylist())


def job(
    hosts: int, per_host: int, calls: int, offset_ns: np.ndarray, dice: np.random.Generator
) -> Ends:
    """Groups within hosts and across them, whose ends are spread evenly over 7 µs."""
    ranks = np.arange(hosts * per_host).reshape(hosts, per_host)
    groups = [*ranks, *ranks.T] if hosts > 1 else [*ranks]
    columns, number = [], 0
    for instant in np.linspace(0, 1e8, calls):
        for k, members in enumerate(groups):
            ends = BASE_NS + int(instant + 1e5 * k) + dice.integers(0, 7001, len(members))
            ends += offset_ns[members // per_host]
            columns.append(np.stack([np.full(len(members), number), members, ends - 9000, ends]))
            number += 1
    collective, process, start, end = np.concatenate(columns, axis=1)
    return Ends(collective, process, start, end, hosts * per_host)


@pytest.mark.parametrize(
    ("hosts", "per_host", "calls"), thinned([(2, 2, 3), (2, 2, 10), (2, 1, 8)], 3)
)
def test_three_standard_deviations_are_seldom_passed(hosts: int, per_host: int, calls: int) -> None:
    """A few calls tell little of their own scatter: 3 of it would be passed in one job of ten."""
    passed, nothing = 0, np.zeros(hosts, np.int64)
    for seed in range(40):
        ends = job(hosts, per_host, calls, nothing, np.random.default_rng(seed))
        found = fit_clocks(ends, np.repeat(np.arange(hosts), per_host))
        shift, _, _ = found.shifts()
        passed += abs(shift[1]) > 3 * standard_errors(ends, found).offset_from_lead[1]
    assert passed <= 1


@pytest.mark.parametrize("hosts", [2, 8, 32])
def test_five_microseconds_are_found(hosts: int) -> None:
    """Standard deviations are those of the fit: neither too small nor too large to be of use."""
    dice = np.random.default_rng(hosts)
    true = np.append(0, dice.choice([-5000, 5000], hosts - 1)).astype(np.int64)
    ends = job(hosts, 8, 12, true, dice)
    found = fit_clocks(ends, np.repeat(np.arange(hosts), 8))
    shift, _, _ = found.shifts()
    sigma = standard_errors(ends, found).offset_from_lead
    assert (np.abs(shift[1:]) > 3 * sigma[1:]).all()
    assert (np.abs(shift + true) <= 3.5 * sigma + 1).all()
    assert (sigma[1:] < 1000).all()


def test_uncertainty_adds_up_along_a_chain() -> None:
    """Each link of a chain of hosts adds its own: the last host is known worst."""
    dice = np.random.default_rng(5)
    errors = []
    for _ in range(8):
        rows = []
        for call in range(10 * 15):
            link = call % 15
            ends = BASE_NS + 1_000_000 * call + dice.normal(0, 2000, 2).astype(int)
            rows += [(call, link + k, int(ends[k]) - 9000, int(ends[k])) for k in range(2)]
        columns = np.array(rows).T
        ends_ = Ends(columns[0], columns[1], columns[2], columns[3], 16)
        found = fit_clocks(ends_, np.arange(16))
        shift, _, _ = found.shifts()
        sigma = standard_errors(ends_, found).offset_from_lead
        assert sigma[15] > 2 * sigma[1]
        errors.append(shift[1:] / sigma[1:])
    assert 0.5 < np.sqrt(np.mean(np.square(errors))) < 1.1


def test_drifts_are_as_uncertain_as_they_miss() -> None:
    """Clocks that do not drift, over ten seconds: what the fit finds is its own error."""
    misses = []
    for seed in range(8):
        ends = job(4, 2, 60, np.zeros(4, np.int64), np.random.default_rng(seed))
        late = (ends.end - BASE_NS) // 100_000 * 9_900_000  # calls 100 times as far apart
        long = Ends(ends.collective, ends.process, ends.start + late, ends.end + late, 8)
        found = fit_clocks(long, np.repeat(np.arange(4), 2))
        _, _, drift = found.shifts()
        errors = standard_errors(long, found)
        assert (errors.drift_from_lead[1:] < 1e-6).all() and (errors.drift < 1e-6).all()
        misses.append(drift[1:] / errors.drift_from_lead[1:])
    assert 0.2 < np.sqrt(np.mean(np.square(misses))) < 1.6
