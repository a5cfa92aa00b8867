"""Operations that a training job logs: their names here, their nature, and what others call them.

Names are those of Megatron's timers with underscores; what other loggers call the same operation
is listed beside it. A name that is not listed is kept as recorded and takes no part in a replay.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class OperationType:
    """One type of operation of a training step."""

    name: str
    kind: str  # compute, pipeline, data_parallel or other
    label: str  # under which answers by type list it
    aliases: tuple[str, ...] = ()

    @property
    def communicates(self) -> bool:
        """Whether it moves data between ranks: its usual duration is then a median (transfers have
        long tails), not a mean."""
        return self.kind in ("pipeline", "data_parallel")


OPERATION_TYPES: tuple[OperationType, ...] = (
    OperationType("forward_compute", "compute", "forward_compute", ("forward", "fwd", "f")),
    OperationType("backward_compute", "compute", "backward_compute", ("backward", "bwd", "b")),
    OperationType("forward_send", "pipeline", "forward_pipeline", ("send_forward", "fwd_send")),
    OperationType("forward_recv", "pipeline", "forward_pipeline", ("recv_forward", "fwd_recv")),
    OperationType("backward_send", "pipeline", "backward_pipeline", ("send_backward", "bwd_send")),
    OperationType("backward_recv", "pipeline", "backward_pipeline", ("recv_backward", "bwd_recv")),
    OperationType(
        "params_all_gather",
        "data_parallel",
        "params_all_gather",
        ("param_all_gather", "all_gather", "unshard_all_gather"),
    ),
    OperationType(
        "grads_reduce_scatter",
        "data_parallel",
        "grads_reduce_scatter",
        ("grad_reduce_scatter", "reduce_scatter"),
    ),
    OperationType(
        "grads_all_reduce",
        "data_parallel",
        "grads_all_reduce",
        ("grad_all_reduce", "all_reduce", "all_grads_sync", "grad_sync"),
    ),
    OperationType("layernorm_grads_all_reduce", "data_parallel", "layernorm_grads_all_reduce"),
    OperationType("embedding_grads_all_reduce", "data_parallel", "embedding_grads_all_reduce"),
    OperationType("separate_grads_all_reduce", "data_parallel", "separate_grads_all_reduce"),
    OperationType(
        "clip_grads",
        "data_parallel",
        "clip_grads",
        ("optimizer_clip_main_grad", "clip_grad_norm", "grad_clip"),
    ),
    OperationType("optimizer", "other", "optimizer", ("optimizer_step", "opt_step", "opt")),
    OperationType("garbage_collection", "other", "garbage_collection", ("gc",)),
    OperationType(
        "data_loading", "other", "data_loading", ("batch_generator", "data_load", "dataloader")
    ),
)

NAMES: tuple[str, ...] = tuple(known.name for known in OPERATION_TYPES)
CODES: dict[str, int] = {name: code for code, name in enumerate(NAMES)}
_WAYS = ((), ("forward",), ("backward",), ("forward", "backward"))
# Calls of several messages (`batch_isend_irecv`) as Megatron names them, and their messages:
# forward_send_backward_recv sends an activation and receives a gradient.
CALLS: dict[str, tuple[str, ...]] = {
    "_".join([*sent, *["send"][: len(sent)], *received, *["recv"][: len(received)]]): (
        *(f"{way}_send" for way in sent),
        *(f"{way}_recv" for way in received),
    )
    for sent in _WAYS
    for received in _WAYS
    if len(sent) + len(received) > 1
}
ROW_TYPES = (*NAMES, *CALLS)  # what rows may be
LABELS: tuple[str, ...] = tuple(dict.fromkeys(known.label for known in OPERATION_TYPES))
_BY_ALIAS = {alias: k.name for k in OPERATION_TYPES for alias in (k.name, *k.aliases)}
_BY_ALIAS |= {name: name for name in CALLS}


def operation_type(recorded: str) -> str:
    """Return the vocabulary's name of an operation; one that is not known as it was recorded."""
    plain = recorded.strip().lower().replace("-", "_").replace(" ", "_")
    return _BY_ALIAS.get(plain, recorded)
