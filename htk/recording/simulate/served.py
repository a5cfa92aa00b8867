"""An iteration of an inference server: one token for each request, by a captured graph.

Products read all weights for a few tokens; attention reads the keys and values of all that each
request looks back on. The range round it is named as vLLM names its own.
"""

from htk.recording.simulate.config import Config
from htk.recording.simulate.experts import MixtureLayers
from htk.recording.simulate.host import SimulatedHost
from htk.recording.simulate.instructions import COMPUTE, Activity, RankProgram
from htk.recording.simulate.layers import Layers

_GRAPH = 1


class AnsweringLayers(Layers):
    """Layers of a decoder that see the last token of each request."""

    def _run_attention(self) -> None:
        config = self.config
        model = self.model
        looked = config.decode_requests * config.context
        heads = model.heads // self.split
        flops = 4 * looked * heads * model.head_dim
        moved = 2 * looked * model.kv_width * config.element_bytes // self.split
        self.host.launch(
            Activity(
                "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4> >(params)",
                "compute",
                COMPUTE,
                self.host.times.attention(flops, moved),
                grid=(-(-config.context // 1024), config.decode_requests, heads),
                registers=255,
                shared_bytes=81920,
                flops=flops,
            )
        )


class AnsweringMixture(AnsweringLayers, MixtureLayers):
    """The same with experts: ranks that these are spread over have requests of their own."""


def build_iteration(config: Config) -> RankProgram:
    """Return one iteration, the same for all ranks that share the model."""
    host = SimulatedHost(config)
    layers = (AnsweringMixture if config.decoder.moe_layers else AnsweringLayers)(host)
    many = config.decode_requests
    name = f"execute_context_0(0)_generation_{many}(sq{many}sk{many * config.context})"
    with host.annotation(name):
        host.think(60_000)  # the scheduler
        with host.graph(_GRAPH):
            layers.embed()
            for _ in range(config.decoder.layers):
                layers.layer(kept=False)
            layers.head()
        copied = Activity(
            "Memcpy DtoH (Device -> Pinned)", "memory", COMPUTE, 1200, category="gpu_memcpy",
            moved=8 * many, call="cudaMemcpyAsync",
        )  # fmt: skip
        with host.range("aten::copy_"):
            host.launch(copied)
            host.synchronize(host.record(COMPUTE))
    host.program.flops = 0  # of training: none
    return host.program
