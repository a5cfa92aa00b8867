"""Plans of training jobs and of servers for agents, which need no trace."""

import inspect
from collections.abc import Mapping, Sequence

from htk.answers.output.result import Result
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.faces.mcp.answers import bound_answer
from htk.physics.hardware import gpu as of_catalogue
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import plan
from htk.planning.plan.table import LABEL, MFU, list_strategies, plan_table
from htk.planning.serving.description import check_memory, describe_server
from htk.planning.serving.server import Server
from htk.planning.serving.steady import Load
from htk.planning.serving.table import MAP_LABEL, map_loads, map_table

_PLANNED = {"nodes": 1, "gpus_per_node": 8, "micro_batch": 1, "seq": 2048}
_MOST_ROWS = 50
_OF_OTHER_TYPES = {"fabric", "speculation"}  # than an agent can write


def plan_training(model: str, gpu: str, cluster: Mapping[str, int | float | str | bool]) -> str:
    """Return the plan of a job, in each strategy unless one is given."""
    _check_names(cluster, set(inspect.signature(PlannedJob).parameters))
    chosen: Fields = {**_PLANNED, **cluster}
    job = PlannedJob(decoder(model), of_catalogue(gpu), **chosen)
    jobs = [job] if "strategy" in cluster else list_strategies(job)
    return bound_answer(
        Result(LABEL, plan_table([plan(j) for j in jobs]), {"mfu": MFU}), _MOST_ROWS
    )


def plan_server(
    model: str, gpu: str, load: Load, requests: Sequence[int], settings: Mapping[str, object]
) -> str:
    """Return the plan of a replica by requests at once."""
    _check_names(settings, set(inspect.signature(Server).parameters) - _OF_OTHER_TYPES)
    if any(count < 1 for count in requests):
        raise UsageError("requests: whole numbers from 1 were expected, e.g. [1, 16]")
    chosen: Fields = {**settings}
    server = Server(decoder(model), of_catalogue(gpu), **chosen)
    check_memory(server)
    rows = map_table(map_loads(server, [load], requests), None)
    return bound_answer(Result(MAP_LABEL, rows, describe_server(server)), _MOST_ROWS)


def _check_names(settings: Mapping[str, object], fields: set[str]) -> None:
    allowed = fields - {"model", "gpu"}
    for name in settings:
        if name not in allowed:
            raise UsageError(f"a plan has no {name!r}; it has {', '.join(sorted(allowed))}")
