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
from htk.recording.simulate.operator_inputs import arguments


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
        hidden, width = self.model.hidden, self.model.ffn // self.split
        load, sent = self._loads(), self._routed * hidden
        self._linear("router", self.model.experts, hidden)
        self._pointwise("index_select", sent, 2, "IndexSelectBackward0", 3)
        self._exchange(sent, (), load)
        self.load = load
        for _ in ("gate", "up") if self.model.gated else ("in",):
            self._grouped(width, hidden)
        inner = self._routed * width
        if self.model.gated:
            self._pointwise("silu", inner, 2, "SiluBackward0", 3, width=width)
            self._pointwise("mul", inner, 3, "MulBackward0", 5, width=width)
        else:
            self._pointwise("gelu", inner, 2, "GeluBackward0", 3, width=width)
        self._grouped(hidden, width)
        self.load = ()
        self._exchange(sent, load, ())
        self._pointwise("index_add", sent, 2, "IndexAddBackward0", 3)

    def _loads(self) -> Load:
        """Return how many tokens the experts of each rank get, over the mean of their group."""
        config = self.config
        if config.expert_parallel == 1 or not config.expert_skew:
            return ()
        liked: Floats = np.exp(self._drawn.normal(0, config.expert_skew, config.expert_parallel))
        group_place = np.arange(config.ranks) // config.tensor_parallel % config.expert_parallel
        return tuple((liked / liked.mean())[group_place].tolist())

    def _exchange(self, elements: int, in_load: Load, out_load: Load) -> None:
        """Tokens go to their experts or come back; their gradients the other way."""
        if self.config.expert_parallel == 1:
            return
        self.host.collective(
            "all_to_all", elements, "expert", COMPUTE, in_load=in_load, out_load=out_load
        )
        self.host.tape.append(
            lambda: self.host.collective(
                "all_to_all", elements, "expert", COMPUTE, in_load=out_load, out_load=in_load
            )
        )

    def _grouped(self, out: int, into: int) -> None:
        """A product for each expert of the rank, in one kernel."""
        rows, load, sequence = self._routed, self.load, self.host.next_sequence()
        weights = self._weights

        def multiply(m: int, n: int, k: int, layout: str, stacked: tuple[int, ...]) -> None:
            with self.host.range(
                "aten::_grouped_mm",
                inputs=arguments(self.kind, (m, k), stacked, None),
                sequence=sequence,
            ):
                self.host.launch(self._grouped_kernel(m, n, k, layout, load))

        multiply(rows, out, into, "tn", (weights, into, out))

        def backward() -> None:
            with self._node("GroupedMmBackward0", sequence):
                multiply(rows, into, out, "nn", (weights, out, into))
                multiply(out, into, rows, "nt", (weights, rows // weights, into))
            self.expert_gradient_ready(weights * out * into)

        self.host.tape.append(backward)

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
