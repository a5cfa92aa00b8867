"""What a rank does in a step: data, forward, backward, optimizer, and its strategy's collectives.

Orders are those of PyTorch's sources. FSDP2: no rate limit; all-gather i+1 waits for copy-out i-1;
compute waits for reduce-scatter i+1 before reduce-scatter i; replicas reduce on a stream of their
own. FSDP1: flat parameters, at most two all-gathers ahead, the next one before a unit's gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from htk.physics.memory import layer_input, model_size
from htk.recording.simulate.config import Config
from htk.recording.simulate.experts import MixtureLayers
from htk.recording.simulate.host import SimulatedHost
from htk.recording.simulate.instructions import AUTOGRAD, COMPUTE, MAIN, Activity, RankProgram
from htk.recording.simulate.layers import Layers
from htk.recording.simulate.operator_inputs import Tensors, TypedTensor, build_operator_inputs
from htk.recording.simulate.pipeline import FORWARD, PipelineSchedule
from htk.recording.simulate.served import build_iteration
from htk.recording.simulate.sharding import Strategy, strategy_of
from htk.recording.simulate.stages import Chunk, Stage, pipeline_stages

# Python functions, as a profiler with stacks names them.
_STEP = "train.py(88): train_step"
_FETCH = "torch/utils/data/dataloader.py(789): _next_data"
_BACKWARD = "torch/_tensor.py(570): backward"
_ENGINE = "torch/autograd/graph.py(825): _engine_run_backward"
_RECOMPUTE = "torch/utils/checkpoint.py(292): backward"
_OPTIMIZE = "torch/optim/optimizer.py(504): wrapper"


@dataclass
class _Part:
    """A chunk of the model on a stage, and what goes on round its layers."""

    chunk: Chunk
    layers: Layers
    strategy: Strategy
    tapes: dict[int, list[Callable[[], None]]] = field(default_factory=dict)  # by micro-batch


def build_programs(config: Config) -> list[RankProgram]:
    """Return one step of each stage of the pipeline, or a server's iteration."""
    return [build_program(config, stage) for stage in pipeline_stages(config)]


def build_program(config: Config, stage: Stage | None = None) -> RankProgram:
    """Return one step, or a server's iteration, the same for all ranks of a stage."""
    if config.decode_requests:
        return build_iteration(config)
    host = SimulatedHost(config, stage)
    parts = [_build_part(host, chunk) for chunk in host.stage.chunks]
    with host.function(_STEP):
        if config.pipeline_parallel > 1:
            _run_pipeline(host, parts)
        else:
            _micro_batches(host, parts[0])
        _run_optimizer(host)
        _log_loss(host)
    return host.program


def _build_part(host: SimulatedHost, chunk: Chunk) -> _Part:
    strategy = strategy_of(host, chunk)
    mixture = MixtureLayers(host, chunk.number) if host.config.decoder.moe_layers else None
    if mixture is not None:
        mixture.expert_gradient_ready = strategy.expert_gradient_ready
    layers = mixture or Layers(host)
    layers.gradient_ready = strategy.gradient_ready
    return _Part(chunk, layers, strategy)


def _micro_batches(host: SimulatedHost, part: _Part) -> None:
    """Run each micro-batch forward and backward."""
    for micro_batch in range(host.config.accumulation):
        part.strategy.last = micro_batch == host.config.accumulation - 1
        _load_batch(host)
        with host.annotation("forward"):
            _run_forward(host, part)
        host.think(9000)
        host.think(0, "gc")
        with host.annotation("backward"):
            _run_backward(host)
            part.strategy.finish()


def _run_pipeline(host: SimulatedHost, parts: list[_Part]) -> None:
    """Run the passes of a stage, and between them the calls that send and receive."""
    config = host.config
    shared = config.tensor_parallel if config.sequence_parallel else 1
    elements = config.tokens * config.decoder.hidden // shared
    schedule = PipelineSchedule(
        host.stage.number, config.pipeline_parallel, config.virtual_stages, config.accumulation
    )
    for item in schedule.items():
        if isinstance(item, list):
            ends: list[tuple[str, int]] = [(each.kind, each.shift) for each in item]
            host.exchange("pipeline", ends, elements)
        elif item.way == FORWARD:
            _stage_forward(host, parts[item.chunk], item.micro_batch)
        else:
            _stage_backward(host, parts[item.chunk], item.micro_batch)
    for part in parts:
        part.strategy.finish()


def _stage_forward(host: SimulatedHost, part: _Part, micro_batch: int) -> None:
    """Run a chunk forward; what autograd remembers is kept until its backward pass."""
    if part.chunk.is_first or part.chunk.is_last:
        _load_batch(host)
    host.tape = []
    with host.annotation("forward"):
        _run_forward(host, part)
    part.tapes[micro_batch] = host.tape


def _stage_backward(host: SimulatedHost, part: _Part, micro_batch: int) -> None:
    """Run a chunk backward; gradients of all but the last micro-batch are only added up."""
    part.strategy.last = micro_batch == host.config.accumulation - 1
    host.tape = part.tapes.pop(micro_batch)
    with host.annotation("backward"):
        _run_backward(host)
        if not part.strategy.last:
            part.strategy.finish()


def _load_batch(host: SimulatedHost) -> None:
    fetch = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    with host.range(fetch, annotation=True), host.function(_FETCH):
        host.think(400_000, "data")
    moved = 8 * host.config.tokens
    batch = host.config.micro_batch
    tokens = TypedTensor((batch, host.config.tokens // batch), "long int")
    with host.range("aten::copy_", inputs=build_operator_inputs("", tokens, tokens, "True")):
        ns = host.times.copy(moved)
        host.launch(_build_copy("Memcpy HtoD (Pinned -> Device)", ns, moved))


def _run_forward(host: SimulatedHost, part: _Part) -> None:
    layers = part.layers
    strategy = part.strategy
    chunk = part.chunk
    root = strategy.root
    with layers.modules.model():
        strategy.before_forward(root)
        host.tape.append(lambda: strategy.after_backward(root))
        if chunk.is_first:
            layers.embed()
        for unit, layer in enumerate(chunk.layers):
            with host.annotation(f"layers.{layer}"), layers.modules.layer(layer):
                strategy.before_forward(unit)
                if host.config.checkpointing:
                    _run_checkpointed(host, part, unit)
                else:
                    _run_kept(host, part, unit)
                strategy.after_forward(unit)
        if chunk.is_last:
            layers.head()
    if chunk.is_last:
        layers.loss()
    host.tape.append(lambda: strategy.before_backward(root))


def _run_kept(host: SimulatedHost, part: _Part, unit: int) -> None:
    layers = part.layers
    strategy = part.strategy
    host.tape.append(lambda: strategy.after_backward(unit))
    if host.config.graphs:
        _run_graphed(host, layers, part.chunk.layers[unit])
    else:
        layers.layer()
    host.tape.append(lambda: strategy.before_backward(unit))


def _run_graphed(host: SimulatedHost, layers: Layers, unit: int, kept: bool = True) -> None:
    """A layer as make_graphed_callables has it: a graph, and another one for its backward pass.

    Gradients are ready when the second one is launched as a whole.
    """
    outer = host.tape
    host.tape = []
    sequence = host.next_sequence()
    with host.range("Graphed", sequence=sequence, flow=1), host.graph(2 * unit + 1):
        layers.layer(kept)
    inner = host.tape
    host.tape = outer

    def run_graph_backward() -> None:
        ready: list[int] = []
        at_once = layers.gradient_ready
        layers.gradient_ready = ready.append
        evaluate = "autograd::engine::evaluate_function: GraphedBackward"
        with host.range(evaluate, sequence=sequence, flow=2), host.graph(2 * unit + 2):
            for entry in reversed(inner):
                entry()
        layers.gradient_ready = at_once
        for elements in ready:
            at_once(elements)

    host.tape.append(run_graph_backward)


def _run_checkpointed(host: SimulatedHost, part: _Part, unit: int) -> None:
    """Run now and forget; run again before the backward pass, then that."""
    layers = part.layers
    strategy = part.strategy
    layer = part.chunk.layers[unit]
    kept = round(layer_input(model_size(host.config.decoder), host.config.layout))
    host.memory(kept)
    outer = host.tape
    host.tape = []
    if host.config.graphs:
        _run_graphed(host, layers, layer, kept=False)
    else:
        layers.layer(kept=False)
    host.tape = outer

    def run_again() -> None:
        strategy.before_backward(unit)
        host.tape = []
        name = "CheckpointFunctionBackward"
        with host.range(f"autograd::engine::evaluate_function: {name}"), host.range(name):
            with host.function(_RECOMPUTE), layers.modules.layer(layer):
                if host.config.graphs:
                    _run_graphed(host, layers, layer)
                else:
                    layers.layer()
            _replay_tape(host)
        host.memory(-kept)
        strategy.after_backward(unit)

    host.tape.append(run_again)


def _run_backward(host: SimulatedHost) -> None:
    """The main thread waits while autograd's thread runs the tape backwards."""
    with host.function(_BACKWARD), host.function(_ENGINE):
        host.think(15_000)
        host.thread = AUTOGRAD
        _replay_tape(host)
        host.thread = MAIN
        host.think(12_000)


def _replay_tape(host: SimulatedHost) -> None:
    tape = host.tape
    host.tape = []
    for entry in reversed(tape):
        entry()


# Tensors that each operator of an optimizer without one kernel of its own moves.
_FOREACH = (("mul_", 2), ("lerp_", 3), ("mul_", 2), ("addcmul_", 4), ("sqrt", 2), ("div_", 2),
            ("add_", 2), ("addcdiv_", 4))  # fmt: skip
# Bytes of a parameter that one kernel moves: weight, two moments and gradient, both ways; moments
# of a byte, whose scales and rounding cost beside it.
_MOVED = {"adam": 30, "adam-8bit": 19}


def _run_optimizer(host: SimulatedHost) -> None:
    """AdamW: reads and writes the state of the parameters that this rank holds."""
    config = host.config
    held = int(host.stage.held_parameters * config.trained // config.owners)
    state = Tensors(((held,),))
    with host.function(_OPTIMIZE), host.annotation("Optimizer.step#AdamW.step"):
        if config.optimizer == "adam-foreach":
            for name, tensors in _FOREACH:
                called = build_operator_inputs("float", *[state] * min(tensors - 1, 3), "1")
                with host.range(f"aten::_foreach_{name}", inputs=called):
                    _update_parameters(host, held, 4 * tensors)
            return
        scalars = ("0.0001", "0.9", "0.999", "0.01", "1e-08", "False", "False")
        called = build_operator_inputs(
            "float", *[state] * 4, Tensors(()), Tensors(((),)), *scalars, None, None
        )
        name = "aten::_fused_adamw_" if config.optimizer == "adam" else "bnb::optimizer_8bit"
        with host.range(name, inputs=called):
            _update_parameters(host, held, _MOVED[config.optimizer])


def _update_parameters(host: SimulatedHost, held: int, each: int) -> None:
    """Launch kernels that move so many bytes of each parameter."""
    kernels = max(1, min(24, held // 40_000_000 + 1))
    names = {
        "adam": "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4> >",
        "adam-foreach": "multi_tensor_apply_kernel<TensorListMetadata<3> >",
        "adam-8bit": "kOptimizerStatic8bit2StateBlockwise<__nv_bfloat16, 0, 256, 1>",
    }
    step = Activity(
        f"void at::native::{names[host.config.optimizer]}",
        "compute",
        COMPUTE,
        host.times.elementwise(each * held // kernels),
        grid=(320, 1, 1),
        block=(512, 1, 1),
        registers=64,
    )
    for _ in range(kernels):
        host.launch(step)


def _log_loss(host: SimulatedHost) -> None:
    """loss.item(): a copy that the host waits for."""
    loss = build_operator_inputs("float", ())
    with (
        host.range("aten::item", inputs=loss),
        host.range("aten::_local_scalar_dense", inputs=loss),
    ):
        host.launch(_build_copy("Memcpy DtoH (Device -> Pinned)", 1200, 4))
        host.synchronize(host.record(COMPUTE))


def _build_copy(name: str, ns: int, moved: int) -> Activity:
    return Activity(
        name,
        "memory",
        COMPUTE,
        ns,
        category="gpu_memcpy",
        moved=moved,
        call="cudaMemcpyAsync",
    )
