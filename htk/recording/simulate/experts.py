"""Layers whose feed-forward is a mixture of experts: each token goes to some of them.

A router chooses. Tokens are copied once for each expert that they take, sent to the ranks that hold
those, multiplied with all weights of a rank by one grouped kernel, sent back and added up. Some
experts are liked better than others, so that ranks get unlike numbers of tokens.
"""

from collections.abc import Callable

import numpy as np

from htk.base.columns.types import Floats
from htk.recording.simulate.host import Load, SimulatedHost
from htk.recording.simulate.instructions import COMPUTE, Activity
from htk.recording.simulate.layers import Layers
from htk.recording.simulate.operator_inputs import build_operator_inputs
from htk.recording.simulate.splits import Splits, splits_of


class MixtureLayers(Layers):
    """Layers of a decoder with experts, on one rank of those that they are spread over."""

    def __init__(self, host: SimulatedHost, chunk: int = 0) -> None:
        super().__init__(host)
        self.expert_gradient_ready: Callable[[int], None] = lambda elements: None
        position = chunk * self.config.pipeline_parallel + host.stage.number
        self._drawn = np.random.default_rng(
            [self.config.seed, 53, *([position] if position else [])]
        )
        self._weights = self.model.experts // self.config.expert_parallel
        self._routed = self.tokens * self.model.active_experts

    def _feed_forward(self) -> None:
        hidden = self.model.hidden
        width = self.model.ffn // self.split
        splits, load = self._route_tokens()
        sent = self._routed * hidden
        self._launch_linear("router", self.model.experts, hidden)
        self._launch_pointwise("index_select", sent, 2, "IndexSelectBackward0", 3)
        self._exchange_tokens(sent, splits)
        self.load = load
        for _ in ("gate", "up") if self.model.gated else ("in",):
            self._multiply_grouped(width, hidden)
        inner = self._routed * width
        if self.model.gated:
            self._launch_pointwise("silu", inner, 2, "SiluBackward0", 3, width=width)
            self._launch_pointwise("mul", inner, 3, "MulBackward0", 5, width=width)
        else:
            self._launch_pointwise("gelu", inner, 2, "GeluBackward0", 3, width=width)
        self._multiply_grouped(hidden, width)
        self.load = ()
        self._exchange_tokens(sent, splits, back=True)
        self._launch_pointwise("index_add", sent, 2, "IndexAddBackward0", 3)

    def _route_tokens(self) -> tuple[Splits | None, Load]:
        """Return the tokens that each rank sends to the experts of each, and how many each gets
        over the mean; all alike where none is liked better."""
        config = self.config
        if config.expert_parallel == 1 or not config.expert_skew:
            return None, ()
        liked: Floats = np.exp(self._drawn.normal(0, config.expert_skew, config.expert_parallel))
        each = config.ranks // self.split
        drawn = self._drawn.multinomial(self._routed, liked / liked.sum(), each)
        sent = np.repeat(drawn, self.split, axis=0)  # tensor-parallel ranks have the same tokens
        splits = splits_of(self.host.groups["expert"], sent, self.model.hidden)
        return splits, tuple((splits.received.sum(axis=1) / self._routed).tolist())

    def _exchange_tokens(self, elements: int, splits: Splits | None, *, back: bool = False) -> None:
        """Tokens go to their experts or come back; their gradients the other way."""
        if self.config.expert_parallel == 1:
            return
        there = splits and splits.returned
        ways = (there, splits) if back else (splits, there)
        self._all_to_all(elements, ways[0])
        self.host.tape.append(lambda: self._all_to_all(elements, ways[1]))

    def _all_to_all(self, elements: int, splits: Splits | None) -> None:
        self.host.collective("all_to_all", elements, "expert", COMPUTE, splits=splits)

    def _multiply_grouped(self, out: int, into: int) -> None:
        """A product for each expert of the rank, in one kernel."""
        rows = self._routed
        load = self.load
        sequence = self.host.next_sequence()
        weights = self._weights

        def multiply_grouped(m: int, n: int, k: int, layout: str, stacked: tuple[int, ...]) -> None:
            with self.host.range(
                "aten::_grouped_mm",
                inputs=build_operator_inputs(self.kind, (m, k), stacked, None),
                sequence=sequence,
            ):
                self.host.launch(self._grouped_kernel(m, n, k, layout, load))

        multiply_grouped(rows, out, into, "tn", (weights, into, out))

        def run_backward() -> None:
            with self._run_node("GroupedMmBackward0", sequence):
                multiply_grouped(rows, into, out, "nn", (weights, out, into))
                multiply_grouped(out, into, rows, "nt", (weights, rows // weights, into))
            self.expert_gradient_ready(weights * out * into)

        self.host.tape.append(run_backward)

    def _grouped_kernel(self, m: int, n: int, k: int, layout: str, load: Load) -> Activity:
        """No faster than the weights of all experts of the rank are read or written."""
        product = self.host.times.gemm(m, n, k, layout)
        each = min(m * n, n * k, m * k) if layout == "nt" else n * k
        read = self.host.times.elementwise(self.config.element_bytes * self._weights * each)
        return Activity(
            f"cutlass::gemm::kernel::GemmUniversal<GroupProblemShape, {product.name}>(Params)",
            "compute",
            COMPUTE,
            max(product.ns, read),
            grid=product.grid,
            block=product.block,
            registers=230,
            shared_bytes=98304,
            flops=2 * m * n * k,
            load=load,
        )
