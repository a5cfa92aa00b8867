"""The launches of a decoder: its operators forward, and backward as autograd remembers them."""

from dataclasses import replace

from htk.physics.decoder import model_flops
from htk.physics.memory import logits_memory, model_size, whole_layer
from htk.recording.simulate.attention import Attention
from htk.recording.simulate.host import SimulatedHost
from htk.recording.simulate.instructions import COMPUTE, Activity
from htk.recording.simulate.operator_inputs import (
    TypedTensor,
    build_operator_inputs,
)


class Layers(Attention):
    """Operators of a decoder, on one rank of a tensor-parallel group."""

    def __init__(self, host: SimulatedHost) -> None:
        super().__init__(host)
        host.program.flops = self._count_flops()

    @property
    def own_tokens(self) -> int:
        """The number of tokens of a rank's norms and residuals."""
        return self.tokens // (self.split if self.config.sequence_parallel else 1)

    def _count_flops(self) -> int:
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
        called = build_operator_inputs(self.kind, (rows, hidden), tokens, "-1", "False", "False")
        with self.modules.library("Embedding", "embed_tokens"):
            self._launch_pointwise(
                "embedding", self.tokens * hidden, 2, "EmbeddingBackward0", 3, called=called
            )
        self._add_weight(self.model.vocab * hidden // self.split)

    def layer(self, kept: bool = True) -> None:
        """Launch one layer; what it keeps for the backward pass is allocated and freed."""
        model = self.model
        split = self.split
        if kept:
            held = round(whole_layer(model_size(model), self.config.layout))
            self.host.memory(held)
            self.host.tape.append(lambda: self.host.memory(-held))
        self._launch_norm("input_layernorm")
        self._gather_tokens()
        with self.modules.part("attention", "self_attn"):
            self._project_inputs()
            self._run_attention()
            self._launch_linear("o_proj", model.hidden, model.hidden // split)
            self._launch_reduction()
        self._launch_pointwise("add", self.own_tokens * model.hidden, 3, "AddBackward0", 0)
        self._launch_norm("post_attention_layernorm")
        self._gather_tokens()
        with self.modules.part("mlp", "mlp"):
            self._feed_forward()
            self._launch_reduction()
        self._launch_pointwise("add", self.own_tokens * model.hidden, 3, "AddBackward0", 0)

    def _project_inputs(self) -> None:
        """Project queries, keys and values; with rotary embeddings where the model is a Llama."""
        model = self.model
        split = self.split
        if not model.gated:
            self._launch_linear(
                "qkv_proj", (model.hidden + 2 * model.kv_width) // split, model.hidden
            )
            return
        self._launch_linear("q_proj", model.hidden // split, model.hidden)
        self._launch_linear("k_proj", model.kv_width // split, model.hidden)
        self._launch_linear("v_proj", model.kv_width // split, model.hidden)
        inner = self.tokens * model.hidden // split
        for _ in range(2):
            for _ in range(2):
                self._launch_pointwise("mul", inner, 3, "MulBackward0", 5)
            self._launch_pointwise("add", inner, 3, "AddBackward0", 0)

    def head(self) -> None:
        self._launch_norm("norm")
        self._gather_tokens()
        self._launch_linear(
            "lm_head", self.model.vocab // self.split, self.model.hidden, not self.model.tied
        )

    def loss(self) -> None:
        width = self.model.vocab // self.split
        logits = self.tokens * width
        labels = TypedTensor((self.tokens,), "long int")
        called = build_operator_inputs(self.kind, (self.tokens, width), labels, None, "1", "-100")
        held = round(logits_memory(model_size(self.model), self.config.layout))
        self.host.memory(held)
        self.host.tape.append(lambda: self.host.memory(-held))
        if self.config.fused_loss:
            self._fused_loss(logits, width)
            return
        with self.modules.library("CrossEntropyLoss", "loss"):
            self._launch_pointwise("_to_copy", logits, 3, "ToCopyBackward0", 3, width=width)
            self._launch_pointwise("_log_softmax", logits, 4, "LogSoftmaxBackward0", 6, width=width)
            self._launch_pointwise("nll_loss", self.tokens, 4, "NllLossBackward0", 4, called=called)

    def _fused_loss(self, logits: int, width: int) -> None:
        """Launch one kernel that reads logits twice and leaves their gradients in their place."""
        sequence = self.host.next_sequence()
        called = self._describe_call("liger_cross_entropy", (self.tokens, width))
        name = "LigerCrossEntropyFunction"
        with self.host.range(name, inputs=called, sequence=sequence, flow=1):
            kernel = self._pass("liger_cross_entropy", logits, 3, ())
            self.host.launch(replace(kernel, name="liger_cross_entropy_kernel"))

        def run_backward() -> None:
            with self._run_node("LigerCrossEntropyFunctionBackward", sequence):
                self.host.think(5000)

        self.host.tape.append(run_backward)

    def _feed_forward(self) -> None:
        model = self.model
        width = self.model.ffn // self.split
        inner = self.tokens * width
        self._launch_linear("gate_proj" if model.gated else "fc_in", width, model.hidden)
        with self.modules.part("activation", "act_fn"):
            if model.gated:
                self._launch_pointwise("silu", inner, 2, "SiluBackward0", 3, width=width)
            else:
                self._launch_pointwise("gelu", inner, 2, "GeluBackward0", 3, width=width)
        if model.gated:
            self._launch_linear("up_proj", width, model.hidden)
            self._launch_pointwise("mul", inner, 3, "MulBackward0", 5, width=width)
        self._launch_linear("down_proj" if model.gated else "fc_out", model.hidden, width)

    def _launch_norm(self, name: str) -> None:
        elements = self.own_tokens * self.model.hidden
        with self.modules.part("norm", name):
            for each in self.config.norm:
                node = "".join(word.capitalize() for word in each.name.split("_")) + "Backward0"
                self._launch_pointwise(
                    each.name, elements, each.moved, node, each.back, each.gradient
                )
        self._add_weight((1 if self.model.gated else 2) * self.model.hidden)

    def _launch_linear(self, name: str, out: int, into: int, own_weight: bool = True) -> None:
        host = self.host
        tokens = self.tokens
        sequence = host.next_sequence()
        linear = build_operator_inputs(self.kind, (tokens, into), (out, into), None)
        matmul = build_operator_inputs(self.kind, (tokens, into), (into, out))
        with (
            self.modules.linear(name),
            host.range("aten::linear", inputs=linear, sequence=sequence, flow=1),
            host.range("aten::matmul", inputs=matmul, sequence=sequence),
        ):
            self._launch_product(tokens, out, into, "tn", sequence)
        rank = self.config.lora_rank

        def run_backward() -> None:
            with self._run_node("MmBackward0", sequence):
                self._launch_product(tokens, into, out, "nn")
                if not rank:
                    self._launch_product(out, into, tokens, "nt")
            if own_weight and not rank:
                self.gradient_ready(out * into)

        host.tape.append(run_backward)
        if rank and name != "lm_head":
            self._launch_adapter(out, into, rank)

    def _launch_adapter(self, out: int, into: int, rank: int) -> None:
        """Launch the two small products of an adapter, whose result is scaled and added."""
        tokens = self.tokens
        sequence = self.host.next_sequence()
        inner = build_operator_inputs(self.kind, (tokens, into), (rank, into), None)
        with self.host.range("aten::linear", inputs=inner, sequence=sequence, flow=1):
            self._launch_product(tokens, rank, into, "tn", sequence)
            self._launch_product(tokens, out, rank, "tn", sequence)

        def run_backward() -> None:
            with self._run_node("MmBackward0", sequence):
                self._launch_product(tokens, rank, out, "nn")
                self._launch_product(out, rank, tokens, "nt")
                self._launch_product(tokens, into, rank, "nn")
                self._launch_product(rank, into, tokens, "nt")
            self.gradient_ready(rank * (out + into))

        self.host.tape.append(run_backward)
        self._launch_pointwise("mul", tokens * out, 2, "MulBackward0", 2, width=out)
        self._launch_pointwise("add", tokens * out, 3, "AddBackward0", 0, width=out)

    def _launch_product(self, m: int, n: int, k: int, layout: str, sequence: int = -1) -> None:
        product = self.host.times.gemm(m, n, k, layout)
        called = build_operator_inputs(self.kind, (m, k), (k, n))
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

    def _launch_reduction(self) -> None:
        """All-reduce what the tensor-parallel ranks computed, here and in the backward pass.

        With sequence parallelism each rank keeps its tokens of the sum, and their gradients are
        gathered.
        """
        if self.config.sequence_parallel:
            self._both_ways("reduce_scatter", "all_gather")
        else:
            self._both_ways("all_reduce", "all_reduce")

    def _gather_tokens(self) -> None:
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
