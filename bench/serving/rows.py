"""Published figures of inference servers, and what `htk plan --serve` says of the same.

published.csv beside this module holds them with where they were published. Batches that begin and
end together, without a queue; LMDeploy's rows are those whose requests did not wait for memory.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from htk.models.decoder import Decoder, decoder
from htk.models.hardware import gpu
from htk.serving.server import Server
from htk.serving.steady import Load, SteadyServer

PUBLISHED = Path(__file__).with_name("published.csv")
_WHOLE = 1 << 20  # tokens of a chunk: these benchmarks read their prompts at once
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
    metric: str  # tokens_per_s, tokens_per_s_per_gpu, first_token_ms, total_ms
    value: float
    where: str

    @property
    def is_first(self) -> bool:
        return self.metric == "first_token_ms"

    @property
    def measured_ns(self) -> float:
        if self.metric.endswith("_ms"):
            return 1e6 * self.value
        gpus = self.server.gpus if self.metric.endswith("per_gpu") else 1
        return 1e9 * self.batch * self.load.generated / (self.value * gpus)

    @property
    def planned_ns(self) -> float:
        first, last = SteadyServer(self.server, self.load).static_ns(self.batch)
        return first if self.is_first else last

    @property
    def error(self) -> float:
        """Logarithm of planned over measured."""
        return math.log(self.planned_ns / self.measured_ns)


def published(path: Path = PUBLISHED) -> list[Published]:
    return list(_rows(path))


def _rows(path: Path) -> Iterator[Published]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            server = Server(
                _OTHERS.get(row["model"]) or decoder(row["model"]), gpu(row["gpu"]),
                int(row["tp"]), weights=row["weights"], kv_cache=row["kv_cache"], chunk=_WHOLE,
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
