"""Matrix products at other sizes, worked out on paper.

A kernel of tiles of a million elements a wave takes 10 ns for a step of k in a wave, and as long as
192 steps besides; another of four millions takes 30 ns. No kernel takes less than 2000 ns.
"""

import pytest

from htk.whatif.products import Products, find_products
from tests.htk.whatif.small_step_model import Act, small_model


def product(name: str, size: tuple[int, int, int], ns: int, waves: float) -> Act:
    m, n, k = size
    return Act(name, 2000 + ns, op="aten::mm", dims=f"[[{m}, {k}], [{k}, {n}]]", blocks=waves)


@pytest.fixture
def seen() -> Products:
    acts = [
        product("small", (1000, 1000, 800), 9_920, 1.0),
        product("small", (1000, 1000, 3008), 32_000, 1.0),
        product("large", (2000, 1000, 800), 29_760, 0.5),
        Act("norm", 9000, family="norm"),
    ]
    return find_products(small_model(acts), 2000)


def test_what_the_recording_shows_of_kernels(seen: Products) -> None:
    assert seen.ramp == 192
    small, large = seen.kernels[0], seen.kernels[1]
    assert (small.wave, small.rate, small.fill) == (1e6, pytest.approx(10), 1)
    assert (large.wave, large.rate, large.fill) == (4e6, pytest.approx(30), 0.5)


def test_a_longer_inner_dimension_does_not_begin_and_end_anew(seen: Products) -> None:
    assert seen.longer(2)[0] == pytest.approx(2000 + 10 * (1600 + 192))


def test_more_rows_take_whole_waves_of_the_same_kernel(seen: Products) -> None:
    assert seen.taller(1.5)[0] == pytest.approx(2000 + 2 * 9_920)


def test_as_many_as_fill_a_larger_one_take_that(seen: Products) -> None:
    assert seen.taller(2)[0] == pytest.approx(2000 + 29_760)
    assert seen.taller(8)[0] == pytest.approx(2000 + 2 * 29_760)


def test_what_ran_beside_a_product_still_does() -> None:
    acts = [product("small", (1000, 1000, 800), ns, 1.0) for ns in [10_000] * 10 + [12_000]]
    seen = find_products(small_model(acts), 2000)
    assert seen.slower[10] == pytest.approx(1.2)
    assert seen.taller(2)[10] == pytest.approx(2000 + 24_000)


def test_products_that_do_not_agree_have_the_usual_ramp() -> None:
    acts = [
        product("one", (1000, 1000, 800), 1_000, 1.0),
        product("one", (1000, 1000, 3200), 90_000, 1.0),
    ]
    assert find_products(small_model(acts), 2000).ramp == 256


def test_products_are_kernels_of_products_whose_sizes_and_blocks_are_known() -> None:
    sizes = "[[1000, 800], [800, 1000]]"
    acts = [
        product("known", (1000, 1000, 800), 9_920, 1.0),
        Act("norm", 9_000, family="norm", op="aten::mm", dims=sizes, blocks=1.0),
        Act("bare", 9_000, op="aten::mm", blocks=1.0),
        Act("blockless", 9_000, op="aten::mm", dims=sizes),
        Act("empty", 9_000, op="aten::mm", dims=sizes, blocks=0.0),
        Act("short", 2_000, op="aten::mm", dims=sizes, blocks=1.0),
        product("one", (1, 1, 1), 5, 1.0),
    ]
    seen = find_products(small_model(acts), 2000)
    assert seen.activity.tolist() == [0, 6]
    assert [(p.m, p.n, p.k, p.ns) for p in seen.usual] == [(1000, 1000, 800, 9_920), (1, 1, 1, 5)]


@pytest.mark.parametrize(("k", "ramp"), [(1599, 256), (1600, 192)])
def test_inner_dimensions_tell_a_ramp_from_twice_on(k: int, ramp: int) -> None:
    acts = [product("one", (1000, 1000, size), 10 * (size + 192), 1.0) for size in (800, k)]
    assert find_products(small_model(acts), 2000).ramp == ramp
