"""Bounds on a described job: the GPU's peak, products, memory, links, and what is usual.

Beyond a bound that no software moves the claim is impossible; beyond what was ever measured, or
what nine of ten such jobs would reach, it needs something that the answer names.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from htk.physics.decoder import model_flops
from htk.verdicts.claims.described import ClaimedJob
from htk.verdicts.claims.expected import expected_rate, lightest_plan

IMPOSSIBLE = "impossible"
NEEDS = "needs"
PLAUSIBLE = "plausible"
_ORDER = (IMPOSSIBLE, NEEDS, PLAUSIBLE)
_AGREE = 0.1  # two numbers of one claim, that count the same work
_STATE_BYTES = 16  # of a parameter: mixed precision with Adam (ZeRO, arXiv:1910.02054)
_HALF = 2  # bytes
_SURELY_TOO_LARGE = 0.99  # probability of running out of memory
_READINGS = 2  # of the weights by a micro-batch: forward and backward


@dataclass(frozen=True)
class ClaimCheck:
    name: str
    verdict: str
    use_pct: float | None  # of the bound, that the claim takes
    reason: str


def verdict_of(checks: list[ClaimCheck]) -> str:
    return min((check.verdict for check in checks), key=_ORDER.index)


def checks(job: ClaimedJob) -> list[ClaimCheck]:
    """Return every check that the claim says enough for."""
    return [
        *_check_agreement(job),
        *_check_arithmetic(job),
        *_check_pipeline(job),
        *_check_weights(job),
        *_check_gradients(job),
        *_check_state(job),
        *_step_memory(job),
        *_check_usual(job),
    ]


def _check_agreement(job: ClaimedJob) -> Iterator[ClaimCheck]:
    """Check whether the numbers of the claim say the same."""
    rates = job.rates
    if len(rates) < 2:
        return
    low = min(rates, key=rates.__getitem__)
    high = max(rates, key=rates.__getitem__)
    ratio = rates[high] / rates[low]
    words = " and ".join(f"{_OPTION[n]} ({rates[n]:,.0f} tokens/s a GPU)" for n in (low, high))
    if ratio <= 1 + _AGREE:
        yield ClaimCheck("numbers agree", PLAUSIBLE, None, f"{words} say the same")
        return
    counted = job.counted_per_token or 1.0
    least = job.flops_per_token or 1.0
    reading = next(
        (
            text
            for factor, text in _list_readings(counted / least)
            if abs(ratio / factor - 1) <= _AGREE
        ),
        None,
    )
    if reading is None:
        reason = f"{words} differ by {ratio:.2f}x: one of them is of something else"
        yield ClaimCheck("numbers agree", NEEDS, None, reason)
    else:
        yield ClaimCheck("numbers agree", PLAUSIBLE, None, f"{words} agree if {reading}")


def _list_readings(attention: float) -> list[tuple[float, str]]:
    return [
        (attention, "causal attention is counted half"),
        (4 / 3, "what is computed again is counted"),
        (4 / 3 * attention, "what is computed again is counted, and causal attention half"),
        (2.0, "the peak is that with sparsity"),
    ]


def _check_arithmetic(job: ClaimedJob) -> Iterator[ClaimCheck]:
    asked = job.executed_flops
    peak = job.peak_flops or math.inf
    name = f"dense {job.precision} peak of {job.gpu.device_name}"
    use = 100 * asked / peak
    numbers = f"{asked / 1e12:,.0f} of {peak / 1e12:,.0f} TFLOP/s"
    if use > 100:
        sparse = ", within its peak with sparsity: of which was it?" if use <= 200 else ""
        yield ClaimCheck(
            "arithmetic", IMPOSSIBLE, use, f"more operations than the {name}: {numbers}{sparse}"
        )
        return
    yield ClaimCheck("arithmetic", PLAUSIBLE, use, f"{numbers}, the {name}")
    fastest = job.gpu.achievable_tflops("fp8" if job.precision == "fp8" else "bf16")
    if job.precision not in ("bf16", "fp16", "fp8") or fastest is None:
        return
    measured = (
        job.gpu.achievable_fp8_tflops if job.precision == "fp8" else job.gpu.achievable_bf16_tflops
    )
    whose = "measured on it" if measured else "usual on such GPUs (none was measured on it)"
    use = 100 * asked / (fastest * 1e12)
    reason = f"{asked / 1e12:,.0f} of {fastest:,.0f} TFLOP/s, the fastest product {whose}"
    if use <= 100:
        yield ClaimCheck("matrix products", PLAUSIBLE, use, reason)
        return
    faster = " (consumer GPUs multiply faster with sums in fp16)" if _is_consumer(job) else ""
    yield ClaimCheck(
        "matrix products", NEEDS, use,
        f"needs the whole step to run faster than that: {reason}{faster}",
    )  # fmt: skip


def _is_consumer(job: ClaimedJob) -> bool:
    return "geforce" in job.gpu.device_name.lower()


def _check_pipeline(job: ClaimedJob) -> Iterator[ClaimCheck]:
    """Check the pipeline: with p stages it is idle for p - 1 micro-batches of a step, divided by
    its virtual stages."""
    stages = job.pipeline_parallel or 1
    count = job.micro_batches
    fastest = job.gpu.achievable_tflops("fp8" if job.precision == "fp8" else "bf16")
    if stages == 1 or count is None or fastest is None or job.precision == "fp4":
        return
    works = count / (count + (stages - 1) / job.virtual_stages)
    use = 100 * job.executed_flops / (works * fastest * 1e12)
    words = f"a pipeline of {stages} stages and {count} micro-batches works {100 * works:.0f} %"
    if use <= 100:
        yield ClaimCheck("pipeline", PLAUSIBLE, use, f"{words} of the step")
    else:
        reason = f"{words} of the step: needs a schedule with less idle time (interleaved, ZB)"
        yield ClaimCheck("pipeline", NEEDS, use, reason)


def _check_weights(job: ClaimedJob) -> Iterator[ClaimCheck]:
    """Check the memory bandwidth: every micro-batch reads the weights forward and backward."""
    rate = job.tokens_per_s_per_gpu
    if rate is None or job.model is None or job.micro_batch is None or job.seq is None:
        return
    read = _READINGS * _HALF * model_flops(job.model, 1, 1) / 6 / job.holders  # active parameters
    micro_batch_s = job.micro_batch * job.seq / (rate * job.shards)
    use = 100 * read / (job.gpu.memory_gbps * 1e9) / micro_batch_s
    words = f"reading the weights twice for each micro-batch takes {use:.0f} % of the time"
    if use > 100:
        yield ClaimCheck(
            "memory bandwidth", IMPOSSIBLE, use, f"{words}: larger micro-batches, or less"
        )
    else:
        yield ClaimCheck("memory bandwidth", PLAUSIBLE, use, words)


def _check_gradients(job: ClaimedJob) -> Iterator[ClaimCheck]:
    """Check the network: replicas add up gradients once a step, however much is overlapped."""
    rate = job.tokens_per_s_per_gpu
    if rate is None or job.global_batch is None or job.seq is None or job.replicas < 2:
        return
    step_s = job.global_batch * job.seq / (rate * job.gpus)
    bytes_of_part = _HALF * _reduced_parameters(job) / job.holders
    inside = max(min(job.gpus_per_node // (job.tensor_parallel or 1), job.replicas), 1)
    nodes = job.replicas / inside
    seconds = 2 * (inside - 1) / inside * bytes_of_part / (job.gpu.scale_up_gbps * 1e9)
    across = 2 * (nodes - 1) / nodes * bytes_of_part / inside if nodes > 1 else 0.0
    seconds = max(seconds, across / (job.gpu.scale_out_gbps * 1e9))
    use = 100 * seconds / step_s
    words = f"adding up 16-bit gradients takes {use:.0f} % of the step at the rate of usual links"
    needs = "a faster network, larger steps or compressed gradients"
    yield _if_it_fits("network", use, words, needs)


def _reduced_parameters(job: ClaimedJob) -> float:
    """Return what every replica has a gradient of: experts may lie on a few GPUs each."""
    every = _all_parameters(job)
    if job.model is None or job.model.experts == 1:
        return every
    return min(every, model_flops(job.model, 1, 1) / 6)


def _all_parameters(job: ClaimedJob) -> float:
    return job.active_parameters or 0.0 if job.model is None else float(job.model.parameters)


def _check_state(job: ClaimedJob) -> Iterator[ClaimCheck]:
    """Check that what training keeps for each parameter fits, spread over all GPUs."""
    parameters = _all_parameters(job)
    if not parameters:
        return
    held = _STATE_BYTES * parameters / job.gpus
    use = 100 * held / job.gpu.memory_bytes
    words = f"Adam's state in mixed precision is {held / 2**30:,.1f} GiB of each GPU, fully sharded"
    needs = "offload, fewer bytes of state, or parameters that do not train"
    yield _if_it_fits("memory", use, words, needs)


def _step_memory(job: ClaimedJob) -> Iterator[ClaimCheck]:
    """Check that the step of a described model fits in the lightest layout that is left open."""
    lightest = None if job.model is None else lightest_plan(job)
    if lightest is None or lightest.p_oom < _SURELY_TOO_LARGE:
        return
    held = lightest.memory.total
    words = f"a step takes {held / 2**30:,.1f} GiB of each GPU, of whatever layout is left open"
    needs = "a smaller micro-batch, checkpointing, more parallelism or offload"
    yield _if_it_fits("memory of a step", 100 * held / job.gpu.memory_bytes, words, needs)


def _if_it_fits(check: str, use_pct: float, words: str, needs: str) -> ClaimCheck:
    """Return a check of what may use 100 % at most: above that, the claim needs something else."""
    if use_pct > 100:
        return ClaimCheck(check, NEEDS, use_pct, f"{words}: needs {needs}")
    return ClaimCheck(check, PLAUSIBLE, use_pct, words)


def _check_usual(job: ClaimedJob) -> Iterator[ClaimCheck]:
    """Check how the claim compares with what the models of a plan expect."""
    rate = job.tokens_per_s_per_gpu
    expected = None if rate is None else expected_rate(job)
    if expected is None or rate is None:
        return
    use = 100 * rate / expected.most
    words = (
        f"{rate:,.0f} tokens/s a GPU; {expected.middle:,.0f} are expected of {expected.what}, and "
        f"one in ten such jobs would pass {expected.most:,.0f}"
    )
    if use <= 100:
        yield ClaimCheck("comparable jobs", PLAUSIBLE, use, words)
    else:
        more = rate / expected.middle
        yield ClaimCheck(
            "comparable jobs", NEEDS, use, f"needs {more:.2f}x what is expected: {words}"
        )


_OPTION = {
    "mfu_pct": "MFU",
    "hfu_pct": "HFU",
    "tflops_per_gpu": "TFLOP/s",
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_gpu": "tokens/s a GPU",
    "step_s": "step time",
}
