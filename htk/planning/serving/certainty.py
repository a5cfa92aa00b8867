"""How far a described server may miss: by what of it was held against published figures.

As plans of training do: each trait adds as much as published servers with it missed by, or what is
assumed of traits that none had. `checked.toml` beside this module is written by the scorecard.
"""

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from htk.base.mappings import Facts
from htk.planning.plan.certainty import Certainty, by_traits
from htk.planning.serving.server import Server

FIRST = "times to the first token"
_OWN = "a network other than the catalogue's"


def estimate_serving_certainty(server: Server, first: bool = False) -> Certainty:
    """Return how far the time for each token, or to the first one, may miss."""
    table = _load_table()
    own = server.fabric is not None or server.link_gbps is not None
    more = {_OWN: table["base"]["unchecked"]} if own and server.gpus > 1 else {}
    return by_traits(table, list_server_traits(server, first), more)


def list_server_traits(server: Server, first: bool = False) -> Iterator[str]:
    """Yield what may make a described server miss, in words."""
    model = server.model
    weights = server.format
    yield f"{server.gpu.architecture or server.gpu.name} GPUs"
    for is_so, words in (
        (first, FIRST),
        (weights.rate == "fp8", "products in fp8"),
        (weights.rate == "fp4", "products in fp4"),
        (weights.rate == "bf16" and weights.weight_bytes == 1, "weights of 8 bits"),
        (weights.rate == "bf16" and weights.weight_bytes < 1, "weights of 4 bits"),
        (server.kernels != "fused", f"{server.kernels} kernels"),
        (server.tensor_parallel > 1, "tensor parallelism"),
        (server.tensor_parallel > server.gpus_per_node, "tensor parallelism between nodes"),
        (server.pipeline_parallel > 1, "pipelines"),
        (model.kv_heads < model.heads and model.latent is None, "grouped-query attention"),
        (model.experts > 1, "mixtures of experts"),
        (model.latent is not None, "latent attention"),
        (model.state_space is not None, "state spaces"),
        (server.speculation is not None, "speculative decoding"),
    ):
        if is_so:
            yield words


@cache
def _load_table() -> Facts:
    text = files("htk.planning.serving").joinpath("checked.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
