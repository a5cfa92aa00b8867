"""Operators that pass over memory, forward, and backward as autograd remembers them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from htk.recording.simulate.host import Load, SimulatedHost
from htk.recording.simulate.instructions import COMPUTE, Activity
from htk.recording.simulate.modules import Modules
from htk.recording.simulate.operator_inputs import (
    Argument,
    OperatorInputs,
    Shape,
    build_operator_inputs,
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


class Passes:
    """Passes over memory, on one rank of a tensor-parallel group."""

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

    def _launch_pointwise(
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
        called = called or self._describe_call(name, shape)
        load = self.load
        with host.range(f"aten::{name}", inputs=called, sequence=sequence, flow=1):
            host.launch(self._pass(name, elements, reads, load))

        def run_backward() -> None:
            with self._run_node(node, sequence):
                if back:
                    with host.range(
                        f"aten::{gradient}", inputs=self._describe_call(gradient, shape)
                    ):
                        host.launch(self._pass(gradient, elements, back, load))

        host.tape.append(run_backward)

    def _describe_call(self, name: str, shape: Shape) -> OperatorInputs:
        more: tuple[Argument, ...] = _MORE.get(name, ())
        if name == "native_layer_norm":
            more = (f"[{shape[1]}]", shape[1:], shape[1:], "1e-05")
        return build_operator_inputs(self.kind, shape, *(shape if m == _SAME else m for m in more))

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
    def _run_node(self, name: str, sequence: int) -> Iterator[None]:
        """Run the block as the evaluation of a node of autograd's graph."""
        evaluate = f"autograd::engine::evaluate_function: {name}"
        with (
            self.host.range(evaluate, sequence=sequence, flow=2),
            self.host.range(name, sequence=sequence),
        ):
            yield

    def _add_weight(self, elements: int) -> None:
        """Add a weight that the operator before uses: their gradients are ready together."""
        if self.config.lora_rank:  # it is frozen
            return
        self.host.tape.insert(len(self.host.tape) - 1, lambda: self.gradient_ready(elements))
