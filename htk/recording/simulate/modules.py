"""The nn.Modules of a decoder, and the Python functions that run them, as a profiler names them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from htk.recording.simulate.host import SimulatedHost

# Classes of a Llama and of a GPT.
_GATED = {
    "model": "LlamaForCausalLM",
    "layer": "LlamaDecoderLayer",
    "norm": "LlamaRMSNorm",
    "attention": "LlamaAttention",
    "mlp": "LlamaMLP",
    "activation": "SiLU",
}
_PLAIN = {
    "model": "GPT",
    "layer": "Block",
    "norm": "LayerNorm",
    "attention": "CausalSelfAttention",
    "mlp": "MLP",
    "activation": "GELU",
}
_TORCH = {
    "Linear": "linear.py(134)",
    "Embedding": "sparse.py(192)",
    "SiLU": "activation.py(473)",
    "GELU": "activation.py(816)",
    "LayerNorm": "normalization.py(229)",
    "CrossEntropyLoss": "loss.py(1385)",
}
_LINES = {"model": 331, "layer": 248, "norm": 61, "attention": 172, "mlp": 113}  # of model.py
_WRAPPERS = {
    "DistributedDataParallel": "torch/nn/parallel/distributed.py(1637): forward",
    "FullyShardedDataParallel": (
        "torch/distributed/fsdp/fully_sharded_data_parallel.py(849): forward"
    ),
}


class Modules:
    """Calls of modules; those of a layer are told apart by the layer that is being run."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        config = host.config
        self._classes = _GATED if config.decoder.gated else _PLAIN
        self._flat = config.strategy != "ddp" and config.fsdp == 1
        self._sharded = "FSDP" if config.strategy != "ddp" and config.fsdp == 2 else ""
        self._replicated = config.strategy == "ddp"
        self._where = ""

    @contextmanager
    def model(self) -> Iterator[None]:
        with ExitStack() as calls:
            if self._replicated:
                calls.enter_context(self._call_wrapper("DistributedDataParallel", "model"))
            if self._flat:
                calls.enter_context(self._call_wrapper("FullyShardedDataParallel", "model"))
            calls.enter_context(self._call_own_class("model", "model", self._sharded))
            yield

    @contextmanager
    def layer(self, unit: int) -> Iterator[None]:
        self._where = f"layers.{unit}."
        with ExitStack() as calls:
            if self._flat:
                calls.enter_context(self._call_wrapper("FullyShardedDataParallel", self._where))
            calls.enter_context(self._call_own_class("layer", self._where, self._sharded))
            yield
        self._where = ""

    def part(self, kind: str, name: str) -> AbstractContextManager[None]:
        """norm, attention, mlp or activation, of the layer that is being run or of the model."""
        return self._call_own_class(kind, self._where + name)

    def linear(self, name: str) -> AbstractContextManager[None]:
        return self.library("Linear", name)

    def library(self, kind: str, name: str) -> AbstractContextManager[None]:
        """Return a module of torch.nn."""
        return self._host.module(
            kind, self._where + name, f"torch/nn/modules/{_TORCH[kind]}: forward"
        )

    def _call_own_class(
        self, kind: str, path: str, prefix: str = ""
    ) -> AbstractContextManager[None]:
        name = self._classes[kind]
        if name in _TORCH:
            return self._host.module(name, path, f"torch/nn/modules/{_TORCH[name]}: forward")
        return self._host.module(prefix + name, path, f"model.py({_LINES[kind]}): forward")

    def _call_wrapper(self, name: str, path: str) -> AbstractContextManager[None]:
        return self._host.module(name, path, _WRAPPERS[name])
