"""Latency and pace of each level, of transfers whose length follows from both."""

from dataclasses import replace

import numpy as np
import pytest

from htk.physics.network import ACROSS_NS, LATENCY_NS
from htk.physics.site_rates import NARROWED, SiteRates
from htk.whatif.network_tiers import link_tier, read_network, site_narrows, site_words
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, small_model

MB = 10**6
SIZES = (MB, 4 * MB, 16 * MB, 64 * MB)


def step(fixed: float, pace: float, *, across: bool, sizes: tuple[int, ...] = SIZES) -> StepModel:
    """All-reduces of 8 ranks: 14/8 of their bytes on the wire; across, by half of the adapters."""
    acts = [Act("a", 1000)]
    for k, size in enumerate(sizes):
        wire = 14 / 8 * size * (2 if across else 1)
        size_of_group = {"group": 8, "per_node": 2 if across else 8, "in_bytes": size}
        acts.append(comm(f"c{k}", round(fixed + pace * wire), "all_reduce", **size_of_group))
    return small_model(acts, gpus_per_node=4 if across else 8)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("pace", [0.004, 0.05])
def test_both_are_found_again(across: bool, pace: float) -> None:
    usual = ACROSS_NS if across else LATENCY_NS
    model = step(usual, pace, across=across)
    tier = link_tier(model, across)
    assert tier.latency == pytest.approx(usual, rel=1e-3)
    assert tier.ns_per_byte == pytest.approx(pace, rel=1e-3)
    other = link_tier(model, not across)
    assert (other.latency, other.ns_per_byte) == (LATENCY_NS if across else ACROSS_NS, None)
    net = read_network(model)
    assert (net.within if not across else net.across).ns_per_byte == pytest.approx(pace, rel=1e-3)
    assert net.node == (4 if across else 8)


def test_latency_is_as_usual_as_transfers_allow() -> None:
    """Four sizes are four observations, the usual latency one: the truth is nearly found."""
    found = link_tier(step(60_000, 0.004, across=False), False)
    assert 55_000 < found.latency < 60_000
    assert found.ns_per_byte is not None and 0.004 < found.ns_per_byte < 0.0045


def test_one_size_keeps_the_usual_latency_and_small_ones_tell_no_pace() -> None:
    one = link_tier(step(LATENCY_NS, 0.01, across=False, sizes=(16 * MB,)), False)
    assert (one.latency, one.ns_per_byte) == (
        pytest.approx(LATENCY_NS),
        pytest.approx(0.01, rel=1e-3),
    )
    small = link_tier(step(15_000, 0.01, across=False, sizes=(1000, 2000)), False)
    assert small.ns_per_byte is None and 14_000 < small.latency < 20_000


def test_transfers_that_get_quicker_with_their_size_have_a_pace_all_the_same() -> None:
    """No slope can be negative: the usual latency, or the shortest transfer, is taken off."""
    acts = [Act("a", 1000)]
    for k, (size, length) in enumerate(((MB, 90_000), (64 * MB, 30_000))):
        acts.append(comm(f"c{k}", length, "all_reduce", group=8, per_node=8, in_bytes=size))
    found = link_tier(small_model(acts), False)
    assert found.latency == LATENCY_NS
    paces = [70_000 / (14 / 8 * MB), 10_000 / (14 / 8 * 64 * MB)]
    assert found.ns_per_byte == pytest.approx(float(np.mean(paces)))


def test_a_sites_rates_stand_for_levels_that_the_recording_does_not_show() -> None:
    model = replace(step(LATENCY_NS, 0.004, across=False))
    facts = replace(model.facts, named="NVIDIA A100-SXM4-80GB", scale_up_gbps=300.0)
    usual = replace(model, facts=facts)
    here = replace(usual, site={"a100-80gb": SiteRates(links=0.5, adapters=0.5)})
    bare, at_site = read_network(usual), read_network(here)
    assert bare.adapters is not None and bare.links is not None
    assert at_site.adapters == pytest.approx(2 * bare.adapters)
    assert at_site.links == pytest.approx(2 * bare.links)
    assert at_site.within == bare.within, "what was recorded stays"
    assert site_narrows(here, True) == NARROWED and "0.50" in site_words(here, True)
    assert site_narrows(here, False) == 1 and not site_words(here, False)
    assert site_narrows(usual, True) == 1
    elsewhere = replace(usual, site={"h100": SiteRates(adapters=0.5)})
    assert read_network(elsewhere) == bare
