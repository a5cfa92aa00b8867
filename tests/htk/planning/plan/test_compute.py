"""Work of a stage: operations against published numbers of parameters, times by hand."""

from dataclasses import replace

import pytest

from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.plan.compute import BACKWARD, KERNEL_NS, PassTime, StageCompute, optimizer_ns
from htk.planning.plan.job import PlannedJob

H100 = gpu("h100")
LLAMA = PlannedJob(decoder("llama3-70b"), H100, gpus_per_node=1, seq=4096)
MIXTRAL = PlannedJob(decoder("mixtral-8x7b"), H100, gpus_per_node=1, seq=4096)


def product_flops(job: PlannedJob) -> float:
    products = StageCompute(job).products()
    return sum(2 * p.rows * p.inner * p.columns * p.count for p in products)


def test_products_are_two_operations_for_each_token_and_parameter() -> None:
    """Of the 70,553,706,496 parameters, tables of tokens and norms are in no layer's product."""
    tables, norms = 2 * 128_256 * 8192, (2 * 80 + 1) * 8192
    assert product_flops(LLAMA) == 2 * 4096 * (70_553_706_496 - tables - norms)


def test_two_experts_of_eight_are_computed() -> None:
    """Each layer: attention of 32 heads and 8 for keys, the router, two of the experts."""
    attention = 4096 * (4096 + 2 * 1024) + 4096 * 4096
    experts = 2 * 3 * 4096 * 14336
    each = attention + 4096 * 8 + experts
    assert product_flops(MIXTRAL) == pytest.approx(2 * 4096 * 32 * each)
    # Capacity 0.5 drops half of what is sent to experts, and nothing else.
    dropped = product_flops(MIXTRAL) - product_flops(replace(MIXTRAL, capacity=0.5))
    assert dropped == pytest.approx(2 * 4096 * 32 * experts / 2)


@pytest.mark.parametrize(
    ("job", "layout", "gpus"),
    [
        (LLAMA, {"tensor_parallel": 8, "gpus_per_node": 8}, 8),
        (LLAMA, {"tensor_parallel": 4, "pipeline_parallel": 2, "gpus_per_node": 8}, 8),
        (LLAMA, {"context_parallel": 4, "gpus_per_node": 8}, 4),
        (MIXTRAL, {"expert_parallel": 8, "gpus_per_node": 8}, 1),
    ],
)
def test_gpus_share_operations_and_none_is_lost(
    job: PlannedJob, layout: dict[str, int], gpus: int
) -> None:
    """Replicas of experts' GPUs each bring tokens of their own."""
    assert gpus * product_flops(replace(job, **layout)) == pytest.approx(product_flops(job))


def test_products_take_what_measured_kernels_do() -> None:
    """Large ones reach 0.6 to 0.8 of the H100's 989 TFLOP/s, a tenth of which steps lose."""
    peak = product_flops(LLAMA) / 989e3
    assert peak / 0.8 < StageCompute(LLAMA).forward.products < peak / 0.55
    eight = StageCompute(replace(LLAMA, precision="fp8")).forward.products
    assert peak / 2 / 0.8 < eight < peak / 2 / 0.5


def test_small_products_are_slower_by_themselves() -> None:
    """Of 64 tokens, weights are read: at most 3.35 TB/s."""
    few = StageCompute(replace(LLAMA, seq=64))
    weights = sum(2 * p.count * p.inner * p.columns for p in few.products())
    assert weights / 3350 < few.forward.products < 2 * weights / 3350


def test_a_site_and_a_framework_are_as_much_slower() -> None:
    plain = StageCompute(LLAMA).forward.products
    slow = replace(H100, achievable_bf16_tflops=H100.achievable_half_tflops / 2)
    assert StageCompute(replace(LLAMA, gpu=slow)).forward.products == pytest.approx(
        2 * plain, rel=0.05
    )
    compiled = StageCompute(replace(LLAMA, kernels="compiled")).forward.products
    assert compiled == pytest.approx(plain / 0.85)


def test_experts_share_tokens_and_each_adds_its_own_start() -> None:
    """Eight GPUs with an expert each, which meet the tokens of all eight."""
    alone = StageCompute(MIXTRAL)
    apart = StageCompute(replace(MIXTRAL, expert_parallel=8, gpus_per_node=8))
    assert 0.7 < apart.forward.products / alone.forward.products < 1.1
    assert StageCompute(replace(MIXTRAL, capacity=0.5)).forward.products < alone.forward.products


def test_a_pass_backward_is_two_forward_and_one_for_adapters() -> None:
    """Products backward have other shapes; LoRA's weights need no gradient."""
    compute, adapters = StageCompute(LLAMA), StageCompute(replace(LLAMA, lora_rank=16))
    assert compute.backward.products == pytest.approx(BACKWARD * compute.forward.products, rel=0.1)
    assert adapters.backward.products == pytest.approx(adapters.forward.products, rel=0.1)
    assert compute.backward.attention == 2.8 * compute.forward.attention
    for logits, ways in ((compute.logits, 2), (adapters.logits, 1)):
        assert logits[1].products == ways * logits[0].products


def test_what_is_computed_again() -> None:
    """Full: the whole pass forward. Selective: half of the products, all else but attention."""
    plain, selective, full = (
        StageCompute(replace(LLAMA, checkpointing=kind)) for kind in ("none", "selective", "full")
    )
    forward = plain.forward
    assert full.backward.total == pytest.approx(plain.backward.total + forward.total)
    again = 0.5 * (forward.products + forward.casts + forward.gaps) + forward.memory
    assert selective.backward.total == pytest.approx(plain.backward.total + again)
    assert full.forward == selective.forward == forward


def test_attention_reaches_what_measured_kernels_do() -> None:
    """Causal: half of 4·s² operations a head and its width, at 0.35 to 0.65 of the peak."""
    peak = 80 * 4 * 4096 * 4096 / 2 * 8192 / 989e3
    attention = StageCompute(LLAMA).forward.attention
    assert peak / 0.65 < attention < peak / 0.35
    halved = StageCompute(replace(LLAMA, seq=2048)).forward.attention
    assert 0.25 < halved / attention < 0.35
    shared = StageCompute(replace(LLAMA, context_parallel=4, gpus_per_node=4)).forward.attention
    assert shared == pytest.approx(attention / 4)
    compiled = StageCompute(replace(LLAMA, kernels="compiled")).forward.attention
    assert compiled == pytest.approx(attention / 0.35)


def test_gaps_are_between_kernels_and_where_the_host_is_late() -> None:
    """70 kernels a layer; of a small model the host's 6 us for each are longer than its work."""
    busy = StageCompute(LLAMA)
    assert busy.forward.gaps + busy.backward.gaps == pytest.approx(KERNEL_NS * 80 * 70)
    assert busy.backward.gaps == pytest.approx(2 * busy.forward.gaps)
    small = PlannedJob(decoder("gpt3-126m"), H100, gpus_per_node=1, seq=64)
    late, graphs = StageCompute(small), StageCompute(replace(small, cuda_graphs=True))
    assert late.forward.total + late.backward.total == pytest.approx(6000 * 12 * 70)
    assert graphs.forward.gaps + graphs.backward.gaps == pytest.approx(KERNEL_NS * 12 * 70)


def test_an_update_reads_and_writes_the_state() -> None:
    """Adam: 12 bytes of state each way, 6 of gradient and parameter in 16 bits beside it."""
    assert optimizer_ns(H100, 1e9, 12.0) == pytest.approx(1e9 * (2 * 12 + 6) / 2680)


def test_times_add_up_part_by_part() -> None:
    one, two = PassTime(1, 2, 3, 4, 5), PassTime(10, 20, 30, 40, 50)
    assert one.plus(two) == PassTime(11, 22, 33, 44, 55) == one.times(11)
    assert two.total == 150
