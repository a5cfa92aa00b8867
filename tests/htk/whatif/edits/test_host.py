"""A faster host: its calls and gaps shrink, the GPU's work does not."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import host
from tests.htk.whatif.edits.host_bound_step import ON_HOST, host_bound_step


@pytest.mark.parametrize(("value", "call", "gap", "between"), [
    ("2x", 10, 50, 500), ("4x", 5, 25, 250), ("0.5x", 42, 202, 2002),
])  # fmt: skip
def test_calls_and_gaps_take_a_share(value: str, call: int, gap: int, between: int) -> None:
    model = host_bound_step()
    graph, faster = model.graph, host.apply(model, value)
    assert set(faster.weight[graph.edges("call")].tolist()) == {call}
    assert set(faster.weight[graph.edges("host_gap")].tolist()) == {gap}
    others = ~graph.edges(*ON_HOST)
    assert (faster.weight[others] == model.weight[others]).all()
    assert (faster.lengths() == 10).all()
    assert set(faster.wrap_weight[model.wrap_weight == 1001].tolist()) == {between}
    assert faster.spread["host"] > 0


def test_no_factor_is_refused() -> None:
    with pytest.raises(UsageError, match="host"):
        host.apply(host_bound_step(), "fast")
