"""A described server in words: what its plan rests on, beside the table."""

from htk.base.core.humanize import format_bytes, format_duration
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.planning.serving.certainty import estimate_serving_certainty
from htk.planning.serving.server import Server


def check_memory(server: Server) -> None:
    """Refuse a server whose weights alone do not fit."""
    if server.kv_room_bytes <= 0:
        raise UsageError(
            f"the weights alone take {format_bytes(server.weight_bytes)} of a"
            f" {server.gpu.device_name}, and do not fit: share them among more GPUs"
            " (tensor parallel), or take narrower weights"
        )


def describe_server(server: Server) -> Fields:
    """Return what a plan of a server rests on, beside its table."""
    model = server.served
    sure = estimate_serving_certainty(server)
    sizes = f"{model.name}, {model.parameters / 1e9:.2f} billion parameters"
    if model.active_parameters != model.parameters:
        sizes += f", {model.active_parameters / 1e9:.2f} active"
    layout = f"{server.tensor_parallel} × {server.gpu.device_name}"
    if server.pipeline_parallel > 1:
        layout = f"{server.pipeline_parallel} stages of {layout}"
    return {
        "model": f"{sizes}, weights in {server.weights}, KV cache in {server.kv_cache}",
        "replica": layout,
        "memory": (
            f"weights {format_bytes(server.weight_bytes)} of a GPU, room for keys and values"
            f" {format_bytes(server.kv_room_bytes)}, of a token"
            f" {format_bytes(server.kv_token_bytes)}"
        ),
        "goodput": [],
        "sigma": round(sure.sigma, 4),
        "assumes": [
            f"prompts are read {server.chunk:,} tokens an iteration",
            f"the host shows {format_duration(server.host_ns)} an iteration",
            "requests begin and leave evenly",
        ],
        "checked": list(sure.checked),
        "unchecked": [*sure.unchecked, "queues (held to a simulation alone)"],
    }
