"""Attention of a decoder: one kernel, round the ring of context-parallel ranks; or in parts."""

from dataclasses import replace

from htk.physics.decoder import attention_pairs
from htk.recording.simulate.instructions import COMPUTE, CONTEXT, Activity
from htk.recording.simulate.operator_inputs import (
    OperatorInputs,
    TypedTensor,
    build_operator_inputs,
)
from htk.recording.simulate.passes import Passes


class Attention(Passes):
    """Queries, keys and values of a layer, and their gradients."""

    def _run_attention(self) -> None:
        host = self.host
        config = self.config
        model = self.model
        heads, batch = model.heads // self.split, config.micro_batch
        if config.attention != "flash":
            self._attention_in_parts(heads)
            return
        pairs = attention_pairs(config.seq, config.seq, causal=True)
        flops = 4 * batch * heads * model.head_dim * pairs // config.context_parallel
        moved = 2 * self.tokens * (model.hidden + model.kv_width) * config.element_bytes
        moved //= self.split
        sequence = host.next_sequence()
        grid = (-(-self.tokens // batch // 128), batch, heads)
        attention, flash, forward, gradient = self._attention_arguments(heads)
        name = "aten::_scaled_dot_product_flash_attention"
        with (
            host.range("aten::scaled_dot_product_attention", inputs=attention, sequence=sequence),
            host.range(name, inputs=flash, sequence=sequence, flow=1),
            host.range("aten::_flash_attention_forward", inputs=forward),
        ):
            self._round_the_ring("flash_fwd_kernel", flops, moved, grid)

        def run_backward() -> None:
            with (
                self._run_node("ScaledDotProductFlashAttentionBackward0", sequence),
                host.range("aten::_flash_attention_backward", inputs=gradient),
            ):
                work = flops * 5 // 2  # one of the products is computed again
                kernel = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel"
                self._round_the_ring(kernel, work, 2 * moved, grid)

        host.tape.append(run_backward)

    def _attention_in_parts(self, heads: int) -> None:
        """Multiply, mask, take the softmax and multiply again: every score is in memory."""
        config = self.config
        seq, size = config.seq, self.model.head_dim
        many = config.micro_batch * heads
        scores = many * seq * seq
        shape = (config.micro_batch, heads, seq, seq)

        def multiply_batched(*sizes: tuple[int, int, int]) -> None:
            for m, n, k in sizes:
                product = self.host.times.gemm(many * m, n, k, "tn")
                called = build_operator_inputs(self.kind, (many, m, k), (many, k, n))
                with self.host.range("aten::bmm", inputs=called):
                    self.host.launch(
                        _build_batched(product.name, product.ns, product.grid, 2 * many * m * n * k)
                    )

        def run_pass(name: str, tensors: int) -> None:
            with self.host.range(f"aten::{name}", inputs=self._describe_call(name, shape)):
                kernel = self._pass(name, scores, tensors, ())
                if "softmax" in name:
                    way = "backward" if "backward" in name else "forward"
                    kernel = replace(kernel, name=f"void (anonymous namespace)::softmax_warp_{way}")
                self.host.launch(kernel)

        sequence = self.host.next_sequence()
        with self.host.range("aten::matmul", inputs=None, sequence=sequence, flow=1):
            multiply_batched((seq, seq, size))
            run_pass("mul", 2)
            run_pass("masked_fill", 2)
            run_pass("_softmax", 2)
            multiply_batched((seq, size, seq))

        def run_backward() -> None:
            with self._run_node("BmmBackward0", sequence):
                multiply_batched((seq, seq, size), (seq, size, seq))
                run_pass("_softmax_backward_data", 3)
                run_pass("masked_fill", 2)
                run_pass("mul", 2)
                multiply_batched((seq, size, seq), (seq, size, seq))

        self.host.tape.append(run_backward)

    def _round_the_ring(
        self, kernel: str, flops: int, moved: int, grid: tuple[int, int, int]
    ) -> None:
        """Attend to the keys and values of each rank in turn, while the next ones come.

        In the backward pass their gradients go with them. Every part is as large: sequences are
        shared out so that each rank has an early and a late piece.
        """
        host = self.host
        ranks = self.config.context_parallel
        width = self.model.kv_width // self.split
        sent = 2 * self.tokens * width * (2 if "bwd" in kernel else 1)
        ns = host.times.attention(flops // ranks, moved)
        if ranks > 1:
            host.order(COMPUTE, CONTEXT)
        for part in range(ranks):
            more = part < ranks - 1
            if more:
                self._pass_on(sent)
            host.launch(_build_flash(kernel, ns, grid, flops // ranks))
            if part:
                merged = self.tokens * self.model.hidden // self.split
                host.launch(self._pass("merge", merged, 4, ()))
            if more:
                host.wait(COMPUTE, host.record(CONTEXT))

    def _pass_on(self, elements: int) -> None:
        """Send keys and values to the next rank of the ring, and take those of the one before."""
        if self.config.context_exchange == "messages":
            self.host.batch("context", [("send", 1), ("recv", -1)], elements, CONTEXT)
        else:
            self.host.collective("all_to_all", elements, "context", CONTEXT, to_next=True)

    def _attention_arguments(self, heads: int) -> list[OperatorInputs]:
        """Return the inputs of the four operators, causal and without dropout.

        Heads come before tokens in the first two, after them in the last two.
        """
        batch = self.config.micro_batch
        size = self.model.head_dim
        seq = self.tokens // batch
        first = (batch, heads, seq, size)
        last = (batch, seq, heads, size)
        longest = str(seq)
        sums = TypedTensor((batch, heads, seq), "float")
        random = TypedTensor((), "unsigned long int")
        return [
            build_operator_inputs(self.kind, *[first] * 3, None, "0.", "True", None, "False"),
            build_operator_inputs(self.kind, *[first] * 3, "0.", "True", "False", None),
            build_operator_inputs(
                self.kind, *[last] * 3, None, None, longest, longest, "0.", "True", "False",
                None, None, None, None, None,
            ),
            build_operator_inputs(
                self.kind, *[last] * 5, sums, None, None, longest, longest, "0.", "True",
                random, random, None, None, None,
            ),
        ]  # fmt: skip


def _build_flash(name: str, ns: int, grid: tuple[int, int, int], flops: int) -> Activity:
    full = f"void pytorch_flash::{name}<Flash_fwd_kernel_traits<128, 128, 64, 4> >(Flash_params)"
    return Activity(
        full,
        "compute",
        COMPUTE,
        ns,
        grid=grid,
        registers=255,
        shared_bytes=81920,
        flops=flops,
    )


def _build_batched(name: str, ns: int, grid: tuple[int, int, int], flops: int) -> Activity:
    return Activity(
        name, "compute", COMPUTE, ns, grid=grid, registers=230, shared_bytes=98304, flops=flops
    )
