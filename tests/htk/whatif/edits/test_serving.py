"""A server's iteration: 8 requests of 1024 tokens each."""

import math

import pytest

from htk.base.errors import UsageError
from htk.base.schema import DERIVED, TABLES
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.serving.iteration import ServerCompute
from htk.planning.serving.server import Server
from htk.whatif.edits import hardware, serving
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, length, period, small_model
from tests.tables import make

STEP = (
    Act("mm", 102_500),
    Act("attention", 52_500, family="attention"),
    Act("norm", 12_500, family="norm"),
)
DECODE = "execute_context_0(0)_generation_8(sq8sk8192)"
MIXED = "execute_40_context_1(sq32sk32sqsq1024sqsk1024)_generation_8(sq8sk8192sqsq8sqsk8192)"
A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def server(name: str = DECODE, device: str | None = None) -> StepModel:
    tables = {n: schema.empty_table() for n, schema in {**TABLES, **DERIVED}.items()}
    iteration = {"name": name, "on_gpu": False, "start_ns": 0, "end_ns": 10, "thread": "1"}
    tables["annotations"] = make("annotations", [iteration])
    return small_model(STEP, tables=tables, device_name=device)


def lengths(value: str, model: StepModel | None = None) -> list[int]:
    changed = serving.apply(model or server(), value)
    return [length(changed, name) for name in ("mm", "attention", "norm")]


def product(read: float, computed: float) -> float:
    """Return the time of a product whose reading and computing hide each other in part."""
    return math.hypot(read, computed)


def grown(before: float, after: float) -> int:
    """Return the length of the recorded product, 2.5 us above which it moves, in ns."""
    return round(2500 + 100_000 * after / before)


def test_more_requests_share_the_weights() -> None:
    # 16 tokens in place of 8, far below the balance of 200
    products = grown(product(1, 8 / 200), product(1, 16 / 200))
    assert 102_500 < products < 102_900
    assert lengths("requests=2x") == [products, 102_500, 22_500]
    assert serving.apply(server(), "requests=16").samples == 2


def test_beyond_the_balance_products_grow() -> None:
    assert lengths("requests=400")[0] == grown(product(1, 8 / 200), product(1, 2))
    assert lengths("requests=200")[0] == grown(product(1, 8 / 200), 2**0.5)


def test_longer_contexts_cost_attention() -> None:
    assert lengths("context=2048") == [102_500, 102_500, 12_500]


def test_a_captured_batch_is_computed_whole() -> None:
    products = grown(product(1, 8 / 200), product(1, 32 / 200))
    assert lengths("captured=32") == [products, 52_500, 42_500]
    with pytest.raises(UsageError, match="does not hold"):
        lengths("captured=4")


def test_prompts_cost_pairs_and_answers_reading() -> None:
    """32 tokens of a prompt look at 32 · 33 / 2; eight heads share what answers read."""
    read, computed = 8192.0, 32 * 33 / 2 * 8 / 200
    attention = 2500 + 50_000 * (read + 4 * computed) / (read + computed)
    rest = 2500 + 10_000 * (8 + 64) / (8 + 32)
    products = grown(product(1, 40 / 200), product(1, 72 / 200))
    assert lengths("prefill=2x", server(MIXED)) == [products, round(attention), round(rest)]
    assert serving.apply(server(MIXED), "prefill=2x").samples == 1  # as many are answered


def test_narrow_weights_are_read_sooner() -> None:
    """8 tokens wait for weights: of 4 bits and a scale of 20 for each 128."""
    model = server(device=A100)
    computed, gbps = 2 * 8 / (0.92 * 271.2e3), 0.8 * 2000
    now = product(2 / gbps, computed)
    for kind, bytes_each in (("int4", 0.5 + 2.5 / 128), ("fp8", 1.0)):
        read = product(bytes_each / gbps, computed)
        assert lengths(f"weights={kind}", model)[0] == pytest.approx(grown(now, read), abs=1)
    assert lengths("weights=bf16", model) == [102_500, 52_500, 12_500]
    with pytest.raises(UsageError, match="catalogue does not hold"):
        lengths("weights=int4")


def test_many_tokens_gain_nothing_from_weights_that_are_unpacked() -> None:
    crowd = server(DECODE.replace("8(sq8sk8192)", "800(sq800sk8192)"), A100)
    assert 0.97 * 102_500 < lengths("weights=int4", crowd)[0] < 102_500  # nor reading to wait for
    faster = server(DECODE.replace("8(sq8sk8192)", "800(sq800sk8192)"), H100)
    computed, gbps = 2 * 800 / 0.92e3, 0.8 * 3350
    before, after = product(2 / gbps, computed / 794.5), product(1 / gbps, computed / 1402.6)
    assert lengths("weights=fp8", faster)[0] == pytest.approx(grown(before, after), abs=1)


def test_gpus_that_share_a_model_sum_its_activations() -> None:
    model = server(device=A100)
    shared = serving.apply(model, "tp=2,model=llama3-8b")
    assert [length(shared, n) for n in ("mm", "attention", "norm")] == [52_500, 27_500, 12_500]
    assert (shared.devices, shared.samples) == (2, 1)
    own = Server(decoder("llama3-8b"), gpu("a100-80gb"), 2)
    sums = ServerCompute(own).communication_ns(8)
    assert period(shared) == pytest.approx(52_500 + 27_500 + 12_500 + sums, abs=2)
    assert any("which fits" in words for words in shared.assumptions)
    with pytest.raises(UsageError, match="needs model="):
        lengths("tp=2", model)


def test_a_model_that_does_not_fit_is_said() -> None:
    many = serving.apply(server(device=A100), "requests=4000,model=llama3-8b")
    assert any("does not fit" in words for words in many.assumptions)


def test_another_gpu_reads_sooner_where_tokens_are_few() -> None:
    """Products of 8 tokens follow memory, 2000 to 3350 GB/s, not matrix units."""
    changed = hardware.apply(server(device=A100), "h100")
    here, there = (
        product(2 / (0.8 * gbps), 2 * 8 / (0.92e3 * rate))
        for gbps, rate in ((2000, 271.2), (3350, 794.5))
    )
    assert length(changed, "mm") == pytest.approx(grown(here, there), abs=1)
    assert 62_000 < length(changed, "mm") < round(2500 + 100_000 * 2000 / 3350)
    assert length(changed, "attention") == round(2500 + 50_000 * 2000 / 3350)
    crowd = server(DECODE.replace("8(sq8sk8192)", "800(sq800sk8192)"), A100)
    computed = length(hardware.apply(crowd, "h100"), "mm")
    assert computed == pytest.approx(2500 + 100_000 * 271.2 / 794.5, rel=0.04)


def test_no_server_no_requests() -> None:
    with pytest.raises(UsageError, match="no iterations"):
        serving.apply(server("a range"), "requests=2x")


PROMPTS = "execute_32_context_1(sq32sk32sqsq1024sqsk1024)_generation_0(sq0sk0sqsq0sqsk0)"


@pytest.mark.parametrize(
    ("name", "value", "samples", "work", "scale"),
    [
        (DECODE, "requests=2x", 2, 1, 2),
        (DECODE, "context=2x", 1, 1, 1),
        (MIXED, "prefill=2x", 1, 72 / 40, 72 / 40),  # work of an answered request
        (MIXED, "requests=3x", 3, (24 + 32) / 40 / 3, 56 / 40),
        (MIXED, "requests=3x,prefill=2x", 3, (24 + 64) / 40 / 3, 88 / 40),
        (PROMPTS, "prefill=3x", 3, 1, 3),  # nobody is answered: prompts are what is served
        (DECODE, "captured=32", 1, 1, 4),
    ],
)
def test_what_is_served_and_what_each_takes(
    name: str, value: str, samples: float, work: float, scale: float
) -> None:
    changed = serving.apply(server(name), value)
    assert changed.samples == pytest.approx(samples)
    assert changed.work == pytest.approx(work)
    assert changed.activation_scale == pytest.approx(scale)
    assert changed.devices == 1 and changed.low_confidence


def test_a_second_edit_goes_on_from_the_first() -> None:
    twice = serving.apply(serving.apply(server(), "requests=2x"), "requests=2x,context=3x")
    assert twice.served is not None
    assert (twice.served.requests, twice.served.context) == (32, 3072)
    assert twice.samples == 4


def test_a_graph_that_holds_more_requests_still_is_what_runs() -> None:
    held = serving.apply(server(), "captured=16")
    assert held.served is not None and held.served.captured == 16
    full = serving.apply(held, "requests=2x")
    assert full.served is not None and full.served.captured == 16, "16 of 16"
    over = serving.apply(full, "requests=17")
    assert over.served is not None and (over.served.captured, over.served.tokens) == (0, 17)


def test_sums_of_gpus_stand_before_the_last_kernel() -> None:
    model = server(device=A100)
    shared = serving.apply(model, "tp=4,model=llama3-8b")
    many = len(model.graph.start)
    assert shared.facts.collective[many:] == ["all_reduce"]
    assert shared.facts.group_size[many:].tolist() == shared.facts.per_node[many:].tolist() == [4]
    own = Server(decoder("llama3-8b"), gpu("a100-80gb"), 4)
    sums = ServerCompute(own).communication_ns(8)
    assert shared.lengths()[many:].tolist() == [round(sums)]
    assert [length(shared, n) for n in ("mm", "attention", "norm")] == [27_500, 15_000, 12_500]
    with pytest.raises(UsageError, match="catalogue does not hold"):
        serving.apply(server(), "tp=2,model=llama3-8b")


def test_assumptions_are_those_of_what_was_asked_and_recorded() -> None:
    def assumed(name: str, value: str) -> str:
        return " ".join(serving.apply(server(name, A100), value).assumptions)

    assert "weights are of 16 bits" in assumed(DECODE, "weights=int4")
    assert "weights are of 16 bits" not in assumed(DECODE, "requests=2x")
    assert "heads of queries share" in assumed(MIXED, "requests=2x")
    assert "heads of queries share" not in assumed(DECODE, "requests=2x")
    assert "heads of queries share" not in assumed(PROMPTS, "prefill=2x")
