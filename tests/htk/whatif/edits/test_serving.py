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


def moved(before: float, after: float) -> int:
    """Return the length of the recorded norm with so many tokens in place of those before: as long
    as 200 more would take it begins and ends."""
    return round(12_500 * (after + 200) / (before + 200))


def grown(before: float, after: float) -> int:
    """Return the length of the recorded product, 2.5 us above which it moves, in ns."""
    return round(2500 + 100_000 * after / before)


def test_more_requests_share_the_weights() -> None:
    # 16 tokens in place of 8, far below the balance of 200
    products = grown(product(1, 8 / 200), product(1, 16 / 200))
    assert 102_500 < products < 102_900
    assert lengths("requests=2x") == [products, 102_500, moved(8, 16)]
    assert serving.apply(server(), "requests=16").samples == 2


def test_beyond_the_balance_products_grow() -> None:
    assert lengths("requests=400")[0] == grown(product(1, 8 / 200), product(1, 2))
    assert lengths("requests=200")[0] == grown(product(1, 8 / 200), 2**0.5)


def test_longer_contexts_cost_attention() -> None:
    assert lengths("context=2048") == [102_500, 102_500, 12_500]


def test_a_captured_batch_is_computed_whole() -> None:
    products = grown(product(1, 8 / 200), product(1, 32 / 200))
    assert lengths("captured=32") == [products, 52_500, moved(8, 32)]
    with pytest.raises(UsageError, match="does not hold"):
        lengths("captured=4")


def test_prompts_cost_pairs_and_answers_reading() -> None:
    """32 tokens of a prompt look at 32 · 33 / 2; eight heads share what answers read."""
    read, computed = 8192.0, 32 * 33 / 2 * 8 / 200
    attention = 2500 + 50_000 * (read + 4 * computed) / (read + computed)
    rest = moved(8 + 32, 8 + 64)
    products = grown(product(1, 40 / 200), product(1, 72 / 200))
    assert lengths("prefill=2x", server(MIXED)) == [products, round(attention), rest]
    assert serving.apply(server(MIXED), "prefill=2x").samples == 72 / 40, "tokens"


def test_narrow_weights_are_read_sooner() -> None:
    """8 tokens wait for weights: of 4 bits and a scale of 20 for each 128."""
    model = server(device=A100)
    computed, gbps = 2 * 8 / (0.92 * 271.2e3), 0.8 * 2000
    now = product(2 / gbps, computed)
    for kind, bytes_each in (("int4", 0.5 + 2.5 / 128), ("fp8", 1.0)):
        read = product(bytes_each / gbps, computed)
        assert lengths(f"weights={kind}", model)[0] == pytest.approx(grown(now, read), abs=1)
    with pytest.raises(UsageError, match="recorded are in that format"):
        lengths("weights=bf16", model)
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


CROWD = "execute_context_0(0)_generation_8000(sq8000sk8192000sqsq8000sqsk8192000)"
PROMPTS = "execute_32_context_1(sq32sk32sqsq1024sqsk1024)_generation_0(sq0sk0sqsq0sqsk0)"


@pytest.mark.parametrize(
    ("name", "value", "samples", "work", "scale"),
    [
        (DECODE, "requests=2x", 2, 1, 2),
        (DECODE, "context=2x", 1, 1, 1),
        (MIXED, "prefill=2x", 72 / 40, 1, 72 / 40),  # tokens read and given
        (MIXED, "requests=3x", 56 / 40, 1, 56 / 40),
        (MIXED, "requests=3x,prefill=2x", 88 / 40, 1, 88 / 40),
        (PROMPTS, "prefill=3x", 3, 1, 3),
        (PROMPTS, "chunk=16", 0.5, 1, 0.5),
        (MIXED, "apart=prefill", 32 / 40, 1, 32 / 40),
        (DECODE, "captured=32", 1, 1, 4),
        (DECODE, "draft=3,acceptance=0.5", 1.875, 4 / 1.875, 4),  # 1 + 1/2 + 1/4 + 1/8 of 4
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


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        (PROMPTS, "requests=2x", "answers no request; ask prefill=2x"),
        (PROMPTS, "captured=64", "answers no request"),
        (PROMPTS, "kv=fp8", "answers no request"),
        (DECODE, "prefill=2x", "reads no prompts; ask requests=2x"),
        (DECODE, "chunk=16", "reads no prompts"),
        (DECODE, "apart=decode", "does not both read and answer"),
        (MIXED, "chunk=32", "no iteration reads more"),
        (MIXED, "apart=both", "decode or prefill"),
        (DECODE, "draft=3", "acceptance=0.7"),
        (DECODE, "acceptance=0.7", "draft=3"),
        (DECODE, "draft=3,acceptance=2", "from 0 to 1"),
        (DECODE, "ep=2", "needs model="),
        (DECODE, "ep=2,model=llama3-8b", "1 experts"),
        (CROWD, "dp=100", "% of the recorded work would be left"),
        ("execute_new_2_cached_0", "prefill=2x", "do not tell the tokens"),
    ],
)
def test_what_was_not_recorded_is_not_changed(name: str, value: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        serving.apply(server(name), value)


def test_narrow_keys_and_values_are_read_sooner() -> None:
    assert lengths("kv=fp8") == [102_500, 27_500, 12_500]


def test_replicas_share_the_requests() -> None:
    """4 requests on each of two GPUs; as many tokens are given as before."""
    products = grown(product(1, 8 / 200), product(1, 4 / 200))
    shared = serving.apply(server(), "dp=2")
    assert [length(shared, n) for n in ("mm", "attention", "norm")] == [
        products, 27_500, moved(8, 4)
    ]  # fmt: skip
    assert (shared.devices, shared.samples, shared.work) == (2, 1, 1)
    assert shared.served is not None and shared.served.tokens_per_s(1e9) == 8


def test_drafts_are_verified_together_and_take_a_layer_each() -> None:
    drafted = serving.apply(server(), "draft=3,acceptance=0.5")
    products = grown(product(1, 8 / 200), product(1, 32 / 200))
    expected = [n * (1 + 3 / 32) for n in (products, 52_500, moved(8, 32))]
    got = [length(drafted, n) for n in ("mm", "attention", "norm")]
    assert got == [pytest.approx(n, abs=1) for n in expected]
    assert drafted.served is not None
    assert drafted.served.tpot_ns(1.875e6) == pytest.approx(1e6)


def test_prompts_in_chunks_look_at_all_before_them() -> None:
    """Half of a prompt in each iteration: half of its tokens and of its pairs."""
    model = server(PROMPTS)
    cut = serving.apply(model, "chunk=16")
    assert length(cut, "attention") == 27_500
    assert cut.served is not None and cut.served.tokens_per_s(1e9) == 16
