"""Launch overhead gone: the GPU's own work remains, and time in which data is loaded."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import graphs
from tests.htk.whatif.edits.host_bound_step import ON_HOST, host_bound_step
from tests.htk.whatif.small_step_model import period


def test_kernels_follow_one_another() -> None:
    model = host_bound_step()
    captured = graphs.apply(model, "on")
    assert period(captured) == 30 < period(model)
    on_host = model.graph.edges(*ON_HOST)
    assert on_host.any() and not captured.weight[on_host].any()
    assert (captured.weight[~on_host] == model.weight[~on_host]).all()
    assert captured.spread["host"] > 0 and "a bound" in captured.assumptions[0]


def test_loading_of_data_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 101 between calls 40 load data, and all 1001 between steps."""
    model = host_bound_step()
    gaps = model.graph.edges("host_gap")
    loading = (gaps * 40, (model.wrap_weight == 1001) * 1001)
    monkeypatch.setattr(graphs, "loading_ns", lambda _: loading)
    captured = graphs.apply(model, "on")
    assert set(captured.weight[gaps].tolist()) == {40}
    assert not captured.weight[model.graph.edges("call")].any()
    assert (captured.wrap_weight == model.wrap_weight).all()


def test_it_can_only_be_on() -> None:
    with pytest.raises(UsageError, match="it can only be on"):
        graphs.apply(host_bound_step(), "off")
