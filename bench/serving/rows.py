"""Published figures of inference servers, and what `htk plan-serving` says of the same.

published.csv beside this module holds them with where they were published: batches that begin and
end together, servers that all requests are given to at the beginning (`loaded`), an iteration.
LMDeploy's rows are those whose requests did not wait for memory.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from htk.physics.decoder import Decoder
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.serving.iteration import IterationWork
from htk.planning.serving.server import Server
from htk.planning.serving.steady import Load, SteadyServer

PUBLISHED = Path(__file__).with_name("published.csv")
_WHOLE = 1 << 20  # tokens of a chunk: batches that begin together are read at once
_USUAL = 8192
_OTHERS = {
    d.name: d
    for d in (
        Decoder("gpt-j-6b", 28, 4096, 16, 16, 16384, 50400, False),
        Decoder("falcon-180b", 80, 14848, 232, 8, 59392, 65024, False, head_size=64),
    )
}


@dataclass(frozen=True)
class Published:
    """One figure, as the time that it stands for."""

    source: str
    label: str
    server: Server
    load: Load
    batch: int
    metric: str  # tokens_per_s, …_per_gpu, loaded_…; first_token_ms, total_ms, iteration_ms
    value: float
    where: str

    @property
    def is_first(self) -> bool:
        return self.metric == "first_token_ms"

    @property
    def kind(self) -> str:
        """What the figure is of, in words."""
        if self.is_first:
            return "first token"
        if self.metric == "iteration_ms":
            return "iteration"
        return "loaded" if self.is_loaded else "all tokens"

    @property
    def is_loaded(self) -> bool:
        """All requests queue from the beginning; as many are answered at once as fit."""
        return self.metric.startswith("loaded")

    @property
    def measured_ns(self) -> float:
        if self.metric.endswith("_ms"):
            return 1e6 * self.value
        gpus = self.server.gpus if self.metric.endswith("per_gpu") else 1
        return 1e9 * self.batch * self.load.generated / (self.value * gpus)

    @property
    def planned_ns(self) -> float:
        steady = SteadyServer(self.server, self.load)
        if self.metric == "iteration_ms":
            work = IterationWork(requests=self.batch, context=self.load.prompt)
            return steady.compute.iteration(work).total
        if self.is_loaded and steady.most_requests < self.batch:  # the others wait their turn
            rate = steady.answering(steady.most_requests).requests_per_s
            return 1e9 * self.batch / rate
        first, last = time_batch(steady, self.batch)
        return first if self.is_first else last

    @property
    def error(self) -> float:
        """Logarithm of planned over measured."""
        return math.log(self.planned_ns / self.measured_ns)


def time_batch(steady: SteadyServer, requests: int) -> tuple[float, float]:
    """Return when a batch that begins together has its first and its last tokens, in ns."""
    load = steady.load
    tokens = requests * load.prompt
    rounds = math.ceil(tokens / steady.server.chunk)
    prompts = requests / rounds
    cached = load.prompt * max(1 - prompts, 0.0) / 2  # of a prompt, by its earlier chunks
    work = IterationWork(tokens / rounds, max(prompts, 1.0), cached)
    first = rounds * steady.compute.iteration(work).total
    later = max(load.generated - 1, 0) / steady.accepted
    return first, first + later * steady.decode(requests).total


def published(path: Path = PUBLISHED) -> list[Published]:
    return list(_rows(path))


def _rows(path: Path) -> Iterator[Published]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            chunk = _USUAL if row["metric"].startswith("loaded") else _WHOLE
            server = Server(
                _OTHERS.get(row["model"]) or decoder(row["model"]), gpu(row["gpu"]),
                int(row["tp"]), weights=row["weights"], kv_cache=row["kv_cache"], chunk=chunk,
                kernels=row["kernels"],
            )  # fmt: skip
            load = Load(int(row["prompt"]), int(row["generated"]))
            label = (
                f"{row['gpu']} {row['model']} tp {row['tp']}: {row['batch']} ×"
                f" {row['prompt']} + {row['generated']}"
            )
            yield Published(
                row["source"], label, server, load, int(row["batch"]), row["metric"],
                float(row["value"]), row["where"],
            )  # fmt: skip
