"""Steps of described jobs against what can be worked out by hand."""

from dataclasses import replace

import pytest

from htk.physics.hardware import gpu
from htk.physics.memory import compute_peak_memory, model_size
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import Plan, plan

LLAMA = PlannedJob(decoder("llama3-70b"), gpu("h100"), nodes=8, seq=4096, tensor_parallel=4,
                   pipeline_parallel=8, accumulation=16, strategy="zero1")  # fmt: skip
QWEN = PlannedJob(decoder("qwen3-30b-a3b"), gpu("b200"), nodes=2, seq=4096, micro_batch=2,
                  expert_parallel=16, strategy="zero1", accumulation=4)  # fmt: skip
GIB = 2**30


def sent(p: Plan, kind: str, phase: str) -> tuple[float, float]:
    rows = [t for t in p.transfers if (t.kind, t.phase) == (kind, phase)]
    return sum(t.input_bytes for t in rows), sum(t.wire_bytes for t in rows)


def test_parts_add_up_to_the_step() -> None:
    for job in (LLAMA, QWEN, replace(QWEN, strategy="full_shard", checkpointing="full")):
        parts = plan(job).parts
        assert sum(vars(parts).values()) == pytest.approx(plan(job).step_ns)
        assert min(vars(parts).values()) >= 0


def test_a_pipeline_idles_while_it_fills() -> None:
    """Of 16 micro-batches through 8 stages 7 slots are idle; with two chunks a stage half of it,
    with weights' gradients in the gaps a third."""
    plain = plan(LLAMA).parts
    slot = (plain.compute + plain.exposed_tensor) / 16
    assert plain.bubble == pytest.approx(7 * slot, rel=1e-6)
    chunks = plan(replace(LLAMA, virtual_stages=2)).parts
    assert chunks.bubble == pytest.approx(plain.bubble / 2, rel=0.02)
    filled = plan(replace(LLAMA, schedule="zero_bubble")).parts
    assert filled.bubble == pytest.approx(plain.bubble / 3, rel=1e-6)


def test_tensor_parallelism_sends_activations_twice_a_layer_and_pass() -> None:
    """80 layers on 8 stages, 16 micro-batches, two exchanges of 4096 × 8192 elements of 2 bytes;
    an all-reduce sends 2 · 3/4 of it."""
    plain = plan(replace(LLAMA, sequence_parallel=False))
    handed, wire = sent(plain, "tensor", "forward")
    assert handed == 10 * 2 * 16 * 4096 * 8192 * 2
    assert wire == handed * 2 * 3 / 4
    assert sent(plain, "tensor", "backward") == (handed, wire)
    again = plan(replace(LLAMA, sequence_parallel=False, checkpointing="full"))
    assert sent(again, "tensor", "forward")[1] == 2 * wire


def test_a_pipeline_sends_an_activation_each_way() -> None:
    whole = replace(LLAMA, sequence_parallel=False)
    assert sent(plan(whole), "pipeline", "forward")[1] == 16 * 4096 * 8192 * 2
    split = sent(plan(LLAMA), "pipeline", "backward")[1]  # a quarter of the sequence each
    assert split == 16 * 4096 * 8192 * 2 / 4


def test_experts_are_sent_to_and_back() -> None:
    """48 layers, 4 micro-batches, 8192 tokens to 8 experts each, 2048 elements of 2 bytes, there
    and back. Of two nodes of 8 a token goes to the other once, unless all 8 lie here."""
    handed, wire = sent(plan(QWEN), "expert", "forward")
    assert handed == 2 * 48 * 4 * 8192 * 8 * 2048 * 2
    assert wire == pytest.approx(handed / 8 * (1 - 0.5**8))
    near = plan(replace(QWEN, nodes=1, expert_parallel=8))
    assert sent(near, "expert", "forward")[1] == pytest.approx(handed * 7 / 8)
    assert near.parts.exposed_expert < plan(QWEN).parts.exposed_expert
    hidden = plan(replace(QWEN, overlap_expert=True)).parts.exposed_expert
    assert hidden == pytest.approx(0.2 * plan(QWEN).parts.exposed_expert)


def test_context_parallelism_passes_keys_and_values_on() -> None:
    """A ring of 4: three times the piece of 1024 tokens, 8 heads of 128 for keys and for values."""
    job = PlannedJob(decoder("llama3-8b"), gpu("h100"), seq=4096, context_parallel=4)
    _, wire = sent(plan(job), "context", "forward")
    assert wire == 32 * 3 * 1024 * 2 * 1024 * 2
    assert sent(plan(job), "context", "backward")[1] == 2 * wire


def test_the_fsdp_report_s_bytes() -> None:
    """Llama 2 7B on 8 ranks: shards of an eighth of 2 bytes each, gathered once forward, and all
    but the root's backward; gradients are scattered whole."""
    model = decoder("llama2-7b")
    p = plan(PlannedJob(model, gpu("a100-80gb"), 2, 4, 8, 512))
    assert sent(p, "data", "forward")[0] == pytest.approx(2 * model.parameters / 8)
    gathers = [t for t in p.transfers if t.phase == "backward" and t.collective == "all_gather"]
    rest = 2 * (model.parameters - model.root_parameters) / 8
    assert gathers[0].input_bytes == pytest.approx(rest, rel=1e-6)
    reduced = [t for t in p.transfers if t.collective == "reduce_scatter"]
    assert reduced[0].wire_bytes == pytest.approx(2 * model.parameters * 7 / 8)


def test_fp8_and_fp4_speed_products_and_cast() -> None:
    b200 = PlannedJob(decoder("llama3-8b"), gpu("b200"), micro_batch=2, seq=8192)
    half, eight, four = (plan(replace(b200, precision=p)).parts for p in ("bf16", "mxfp8", "nvfp4"))
    assert 1.6 < half.products / eight.products < 2.0
    assert eight.products / four.products > 1.3  # the output stays in 16 bits
    assert half.casts == 0 < eight.casts
    assert half.attention == eight.attention
    single = plan(replace(b200, precision="fp32")).parts
    assert single.products > 1.8 * half.products


def test_lora_trains_adapters_alone() -> None:
    """No gradients of weights: two of three products; no state of the optimizer for the rest."""
    full = PlannedJob(decoder("llama2-70b"), gpu("h100"), seq=4096)
    lora = replace(full, lora_rank=16)
    assert lora.trained_share == pytest.approx(207e6 / 69e9, rel=0.03)  # Hu et al.'s count
    assert plan(lora).parts.products == pytest.approx(2 / 3 * plan(full).parts.products, rel=0.02)
    assert plan(lora).memory.optimizer < 0.01 * plan(full).memory.optimizer


def test_optimizers_and_offload_take_what_they_say() -> None:
    job = PlannedJob(decoder("llama3-8b"), gpu("h200"), seq=4096)
    state = {
        name: plan(replace(job, optimizer=name)).memory.optimizer / (job.model.parameters / 8)
        for name in ("adam", "adam-8bit", "sgd", "none")
    }
    assert state == pytest.approx({"adam": 12, "adam-8bit": 6, "sgd": 8, "none": 0}, rel=1e-6)
    away = plan(replace(job, offload="optimizer"))
    assert away.memory.optimizer == 0 and away.parts.offload > 0
    kept, moved = plan(job).memory, plan(replace(job, offload="activations")).memory
    assert moved.activations < 0.1 * kept.activations


def test_the_first_stage_holds_most_micro_batches_and_the_last_the_logits() -> None:
    p = plan(LLAMA)
    stages = [p.memory_of_stage(s) for s in range(8)]
    held = [s.activations for s in stages]
    assert held == sorted(held, reverse=True)
    assert [s.logits > 0 for s in stages] == [False] * 7 + [True]
    assert p.memory.total == max(s.total for s in stages)
    assert compute_peak_memory(model_size(LLAMA.model), LLAMA.layout) == p.memory


def test_interleaving_holds_more() -> None:
    """Narayanan et al., 2021: 1 + (p-1)/(p·v) times as much; a working layer comes to both."""
    plain = plan(LLAMA).memory_of_stage(0)
    chunks = plan(replace(LLAMA, virtual_stages=5)).memory_of_stage(0)
    assert chunks.activations / plain.activations == pytest.approx(1 + 7 / 40, rel=0.01)


def test_experts_of_other_ranks_take_no_memory() -> None:
    """Qwen3 30B on one replica of 16 ranks: 29 billion parameters of experts over 16."""
    model = QWEN.model
    experts = 48 * 128 * 3 * 2048 * 768
    alone = (model.parameters - experts) + experts / 16
    assert plan(QWEN).memory.parameters == pytest.approx(2 * alone, rel=1e-6)


def test_more_gpus_are_faster_and_less_efficient() -> None:
    job = PlannedJob(decoder("llama3-8b"), gpu("h100"), 1, 8, 1, 4096, strategy="ddp")
    rates = [plan(replace(job, nodes=n)).tokens_per_s / n for n in (2, 8, 64, 512)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0.5 * rates[0]


def test_energy_and_cost_of_a_token() -> None:
    p = plan(replace(LLAMA, price=2.0, run_tokens=1e12, watts=500.0))
    assert p.joules_per_token == pytest.approx(500 * 64 / p.tokens_per_s)
    assert p.cost_per_million_tokens == pytest.approx(64 * 2.0 / 3600 / p.tokens_per_s * 1e6)
    assert p.run_days == pytest.approx(1e12 / p.tokens_per_s / 86400)


def test_fused_kernels_and_fp8_keep_less_of_a_layer() -> None:
    """Of a feed-forward of 14336 for each of 4096 tokens: the activated gate is computed again;
    what goes into products in fp8 takes a byte, of the norms' results and of the last product."""
    job = PlannedJob(decoder("llama3-8b"), gpu("h100"), seq=4096, kernels="compiled")
    kept, gates, eight = (
        plan(j).memory.activations
        for j in (
            job,
            replace(job, kernels="fused"),
            replace(job, kernels="fused", precision="fp8"),
        )
    )
    assert kept - gates == 32 * 4096 * 2 * 14336
    assert gates - eight == 32 * 4096 * (14336 + 2 * 4096)
