"""Work of a stage: operations against published numbers of parameters, times by hand."""

from dataclasses import replace

import pytest

from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.plan.compute import (
    BACKWARD,
    KERNEL_NS,
    PRODUCTS,
    PassTime,
    PlannedProduct,
    StageCompute,
    achievable,
    flash_share,
    optimizer_ns,
    tile_depth,
)
from htk.planning.plan.job import PlannedJob

H100 = gpu("h100")
LLAMA = PlannedJob(decoder("llama3-70b"), H100, gpus_per_node=1, seq=4096)
MIXTRAL = PlannedJob(decoder("mixtral-8x7b"), H100, gpus_per_node=1, seq=4096)


def product_flops(job: PlannedJob) -> float:
    return sum(product.flops for product in StageCompute(job).products())


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


def test_a_product_by_hand() -> None:
    """[3,5] by [5,7], twice: 2·3·5·7 operations each; operands of 1 byte, results of 2."""
    product = PlannedProduct(3, 5, 7, count=2)
    assert product.flops == 2 * 2 * 3 * 5 * 7
    assert product.moved(1, 2) == 2 * (3 * 5 + 5 * 7 + 2 * 3 * 7)


def test_times_of_products_are_operations_and_operands() -> None:
    """One product each: at 0.92 of the fastest measured rate, with tiles' ends and operands."""
    compute = StageCompute(LLAMA)
    forward = 0.0
    for p in compute.products():
        forward += p.flops / (PRODUCTS * 794.5e3) * (1 + tile_depth(H100, 794.5e3) / p.inner)
        forward += (
            p.count * 2 * (p.rows * p.inner + p.inner * p.columns + p.rows * p.columns) / 2680
        )
    assert compute.forward.products == pytest.approx(forward)
    # A tile of 128 x 256 on each of 132 units: 2 us of its ends are worth so deep a product.
    assert tile_depth(H100, 794.5e3) == pytest.approx(2000 * 794.5e3 / 132 / (2 * 128 * 256))


def test_a_pass_backward_is_two_forward_and_one_for_adapters() -> None:
    """Deep and wide products have the same ends each way; LoRA's weights need no gradient."""
    compute, adapters = StageCompute(LLAMA), StageCompute(replace(LLAMA, lora_rank=16))
    assert compute.backward.products == pytest.approx(BACKWARD * compute.forward.products, rel=0.05)
    assert adapters.backward.products == pytest.approx(adapters.forward.products, rel=0.05)
    assert compute.backward.attention == 2.5 * compute.forward.attention
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


def test_attention_by_hand() -> None:
    """Causal: half of 4·s² operations a head and its width; narrow heads and short rows lose."""
    assert flash_share(H100, 128) == flash_share(H100, 256) == 0.55
    assert flash_share(H100, 32) == 0.55 * 0.5
    assert flash_share(gpu("mi300x"), 128) == 0.4
    share = 0.55 * 4096 / (4096 + 512)
    flops = 80 * 4 * 4096 * 4096 / 2 * 8192
    assert StageCompute(LLAMA).forward.attention == pytest.approx(
        flops / (share * 794.5e3), rel=1e-3
    )
    halved = StageCompute(replace(LLAMA, seq=2048)).forward.attention
    assert halved == pytest.approx(
        StageCompute(LLAMA).forward.attention / 4 * (2048 + 512) / (4096 + 512) * 2, rel=2e-3
    )


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


def test_rates_of_formats_that_a_gpu_lacks_are_those_of_16_bits() -> None:
    assert achievable(H100, "fp8") == 1402.6
    assert achievable(H100, "fp4") == achievable(H100, "bf16") == 794.5


def test_times_add_up_part_by_part() -> None:
    one, two = PassTime(1, 2, 3, 4, 5), PassTime(10, 20, 30, 40, 50)
    assert one.plus(two) == PassTime(11, 22, 33, 44, 55) == one.times(11)
    assert two.total == 150
