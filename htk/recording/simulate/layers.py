"""The launches of a decoder: its operators forward, and backward as autograd remembers them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from htk.physics.decoder import attention_pairs, model_flops
from htk.physics.memory import logits_memory, model_size, whole_layer
from htk.recording.simulate.host import Load, SimulatedHost
from htk.recording.simulate.instructions import COMPUTE, CONTEXT, Activity
from htk.recording.simulate.modules import Modules
from htk.recording.simulate.operator_inputs import (
    Argument,
    OperatorInputs,
    Shape,
    TypedTensor,
    arguments,
)

_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>"
_SAME: Shape = ()  # a tensor of the same shape
# What operators take after their first tensor.
_MORE: dict[str, tuple[Argument, ...]] = {
    "add": (_SAME, "1"),
    "mul": (_SAME,),
    "pow": ("2",),
    "mean": ("[-1]", "True", None),
    "gelu": ("none",),
    "_to_copy": ("6", None, None, None, "False", None),
    "_log_softmax": ("-1", "False"),
}


class Layers:
    """Operators of a decoder, on one rank of a tensor-parallel group."""

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host
        self.modules = Modules(host)
        self.config = host.config
        self.model = host.config.decoder
        self.kind = host.config.element_type
        self.split = host.config.tensor_parallel
        self.tokens = host.config.tokens
        self.load: Load = ()  # by rank, of what is computed now, times the mean
        self.gradient_ready: Callable[[int], None] = lambda elements: None
        host.program.flops = self._flops()

    @property
    def own_tokens(self) -> int:
        """The number of tokens of a rank's norms and residuals."""
        return self.tokens // (self.split if self.config.sequence_parallel else 1)

    def _flops(self) -> int:
        """Return the model's operations of a step on this rank, without recomputation."""
        config = self.config
        stage = self.host.stage
        logits = 6 * config.micro_batch * config.seq * self.model.vocab * self.model.hidden
        in_layers = model_flops(self.model, config.micro_batch, config.seq) - logits
        own = in_layers * stage.layers // self.model.layers + (logits if stage.is_last else 0)
        return own * config.accumulation // (self.split * config.context_parallel)

    def embed(self) -> None:
        hidden = self.model.hidden
        rows = self.model.vocab // self.split
        shape = (self.config.micro_batch, self.tokens // self.config.micro_batch)
        tokens = TypedTensor(shape, "long int")
        called = arguments(self.kind, (rows, hidden), tokens, "-1", "False", "False")
        with self.modules.library("Embedding", "embed_tokens"):
            self._pointwise(
                "embedding", self.tokens * hidden, 2, "EmbeddingBackward0", 3, called=called
            )
        self._weight(self.model.vocab * hidden // self.split)

    def layer(self, kept: bool = True) -> None:
        """Launch one layer; what it keeps for the backward pass is allocated and freed."""
        model = self.model
        split = self.split
        if kept:
            held = round(whole_layer(model_size(model), self.config.layout))
            self.host.memory(held)
            self.host.tape.append(lambda: self.host.memory(-held))
        self._norm("input_layernorm")
        self._gathered()
        with self.modules.part("attention", "self_attn"):
            self._project()
            self._attention()
            self._linear("o_proj", model.hidden, model.hidden // split)
            self._reduced()
        self._pointwise("add", self.own_tokens * model.hidden, 3, "AddBackward0", 0)
        self._norm("post_attention_layernorm")
        self._gathered()
        with self.modules.part("mlp", "mlp"):
            self._feed_forward()
            self._reduced()
        self._pointwise("add", self.own_tokens * model.hidden, 3, "AddBackward0", 0)

    def _project(self) -> None:
        """Project queries, keys and values; with rotary embeddings where the model is a Llama."""
        model = self.model
        split = self.split
        if not model.gated:
            self._linear("qkv_proj", (model.hidden + 2 * model.kv_width) // split, model.hidden)
            return
        self._linear("q_proj", model.hidden // split, model.hidden)
        self._linear("k_proj", model.kv_width // split, model.hidden)
        self._linear("v_proj", model.kv_width // split, model.hidden)
        inner = self.tokens * model.hidden // split
        for _ in range(2):
            for _ in range(2):
                self._pointwise("mul", inner, 3, "MulBackward0", 5)
            self._pointwise("add", inner, 3, "AddBackward0", 0)

    def head(self) -> None:
        self._norm("norm")
        self._gathered()
        self._linear(
            "lm_head", self.model.vocab // self.split, self.model.hidden, not self.model.tied
        )

    def loss(self) -> None:
        width = self.model.vocab // self.split
        logits = self.tokens * width
        labels = TypedTensor((self.tokens,), "long int")
        called = arguments(self.kind, (self.tokens, width), labels, None, "1", "-100")
        held = round(logits_memory(model_size(self.model), self.config.layout))
        self.host.memory(held)
        self.host.tape.append(lambda: self.host.memory(-held))
        with self.modules.library("CrossEntropyLoss", "loss"):
            self._pointwise("_to_copy", logits, 3, "ToCopyBackward0", 3, width=width)
            self._pointwise("_log_softmax", logits, 4, "LogSoftmaxBackward0", 6, width=width)
            self._pointwise("nll_loss", self.tokens, 4, "NllLossBackward0", 4, called=called)

    def _feed_forward(self) -> None:
        model = self.model
        width = self.model.ffn // self.split
        inner = self.tokens * width
        self._linear("gate_proj" if model.gated else "fc_in", width, model.hidden)
        with self.modules.part("activation", "act_fn"):
            if model.gated:
                self._pointwise("silu", inner, 2, "SiluBackward0", 3, width=width)
            else:
                self._pointwise("gelu", inner, 2, "GeluBackward0", 3, width=width)
        if model.gated:
            self._linear("up_proj", width, model.hidden)
            self._pointwise("mul", inner, 3, "MulBackward0", 5, width=width)
        self._linear("down_proj" if model.gated else "fc_out", model.hidden, width)

    def _norm(self, name: str) -> None:
        elements = self.own_tokens * self.model.hidden
        with self.modules.part("norm", name):
            for each in self.config.norm:
                node = "".join(word.capitalize() for word in each.name.split("_")) + "Backward0"
                self._pointwise(each.name, elements, each.moved, node, each.back, each.gradient)
        self._weight((1 if self.model.gated else 2) * self.model.hidden)

    def _linear(self, name: str, out: int, into: int, own_weight: bool = True) -> None:
        host = self.host
        tokens = self.tokens
        sequence = host.next_sequence()
        linear = arguments(self.kind, (tokens, into), (out, into), None)
        matmul = arguments(self.kind, (tokens, into), (into, out))
        with (
            self.modules.linear(name),
            host.range("aten::linear", inputs=linear, sequence=sequence, flow=1),
            host.range("aten::matmul", inputs=matmul, sequence=sequence),
        ):
            self._multiply(tokens, out, into, "tn", sequence)

        def backward() -> None:
            with self._node("MmBackward0", sequence):
                self._multiply(tokens, into, out, "nn")
                self._multiply(out, into, tokens, "nt")
            if own_weight:
                self.gradient_ready(out * into)

        host.tape.append(backward)

    def _multiply(self, m: int, n: int, k: int, layout: str, sequence: int = -1) -> None:
        product = self.host.times.gemm(m, n, k, layout)
        called = arguments(self.kind, (m, k), (k, n))
        with self.host.range("aten::mm", inputs=called, sequence=sequence):
            self.host.launch(
                Activity(
                    product.name,
                    "compute",
                    COMPUTE,
                    product.ns,
                    grid=product.grid,
                    block=product.block,
                    registers=230,
                    shared_bytes=98304,
                    flops=2 * m * n * k,
                )
            )

    def _attention(self) -> None:
        host = self.host
        config = self.config
        model = self.model
        heads, batch = model.heads // self.split, config.micro_batch
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

        def backward() -> None:
            with (
                self._node("ScaledDotProductFlashAttentionBackward0", sequence),
                host.range("aten::_flash_attention_backward", inputs=gradient),
            ):
                work = flops * 5 // 2  # one of the products is computed again
                kernel = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel"
                self._round_the_ring(kernel, work, 2 * moved, grid)

        host.tape.append(backward)

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
            host.launch(_flash(kernel, ns, grid, flops // ranks))
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
            arguments(self.kind, *[first] * 3, None, "0.", "True", None, "False"),
            arguments(self.kind, *[first] * 3, "0.", "True", "False", None),
            arguments(
                self.kind, *[last] * 3, None, None, longest, longest, "0.", "True", "False",
                None, None, None, None, None,
            ),
            arguments(
                self.kind, *[last] * 5, sums, None, None, longest, longest, "0.", "True",
                random, random, None, None, None,
            ),
        ]  # fmt: skip

    def _pointwise(
        self,
        name: str,
        elements: int,
        reads: int,
        node: str,
        back: int,
        gradient: str = "mul",
        *,
        width: int | None = None,
        called: OperatorInputs | None = None,
    ) -> None:
        """Launch an operator that passes over memory; `reads` and `back` count tensors moved."""
        host = self.host
        sequence = host.next_sequence()
        width = width or self.model.hidden
        shape = (max(1, elements // width), width)
        called = called or self._called(name, shape)
        load = self.load
        with host.range(f"aten::{name}", inputs=called, sequence=sequence, flow=1):
            host.launch(self._pass(name, elements, reads, load))

        def backward() -> None:
            with self._node(node, sequence):
                if back:
                    with host.range(f"aten::{gradient}", inputs=self._called(gradient, shape)):
                        host.launch(self._pass(gradient, elements, back, load))

        host.tape.append(backward)

    def _called(self, name: str, shape: Shape) -> OperatorInputs:
        more: tuple[Argument, ...] = _MORE.get(name, ())
        if name == "native_layer_norm":
            more = (f"[{shape[1]}]", shape[1:], shape[1:], "1e-05")
        return arguments(self.kind, shape, *(shape if m == _SAME else m for m in more))

    def _pass(self, name: str, elements: int, tensors: int, load: Load) -> Activity:
        blocks = max(1, elements // 512)
        return Activity(
            _ELEMENTWISE.format(f"{name.strip('_')}_functor") + "(int, std::array<char*, 3ul>)",
            "compute",
            COMPUTE,
            self.host.times.elementwise(self.config.element_bytes * tensors * elements),
            grid=(blocks, 1, 1),
            load=load,
        )

    @contextmanager
    def _node(self, name: str, sequence: int) -> Iterator[None]:
        """Run the block as the evaluation of a node of autograd's graph."""
        evaluate = f"autograd::engine::evaluate_function: {name}"
        with (
            self.host.range(evaluate, sequence=sequence, flow=2),
            self.host.range(name, sequence=sequence),
        ):
            yield

    def _weight(self, elements: int) -> None:
        """Add a weight that the operator before uses: their gradients are ready together."""
        self.host.tape.insert(len(self.host.tape) - 1, lambda: self.gradient_ready(elements))

    def _reduced(self) -> None:
        """All-reduce what the tensor-parallel ranks computed, here and in the backward pass.

        With sequence parallelism each rank keeps its tokens of the sum, and their gradients are
        gathered.
        """
        if self.config.sequence_parallel:
            self._both_ways("reduce_scatter", "all_gather")
        else:
            self._both_ways("all_reduce", "all_reduce")

    def _gathered(self) -> None:
        """Gather the tokens that sequence-parallel ranks share; their gradients are scattered."""
        if self.config.sequence_parallel:
            self._both_ways("all_gather", "reduce_scatter")

    def _both_ways(self, forward: str, backward: str) -> None:
        """Launch a collective of the tensor-parallel ranks here, and one in the backward pass."""
        elements = self.tokens * self.model.hidden
        if self.split > 1:
            self.host.collective(forward, elements, "tensor", COMPUTE)
            self.host.tape.append(
                lambda: self.host.collective(backward, elements, "tensor", COMPUTE)
            )


def _flash(name: str, ns: int, grid: tuple[int, int, int], flops: int) -> Activity:
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
