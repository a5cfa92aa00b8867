"""Who recorded a report: host, GPUs, environment, and which rank each process is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from htk.base.core.stated_counts import RANK
from htk.base.schema import INT64, STRING
from htk.parsers.common.log_records import compact_json, whole_number
from htk.parsers.common.sqlite_file import Database

_VARIABLE = re.compile(r'^(\w+)="?(.*?)"?$', re.DOTALL)
_ARGUMENT = re.compile(r":ARGUMENT_(\d+)$")
# Programs that start several processes: their own environment is that of no rank.
_LAUNCHERS = re.compile(
    r"torchrun|torch\.distributed|accelerate|deepspeed|mpirun|mpiexec|srun|horovodrun|^ray$"
)
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


@dataclass(frozen=True)
class Machine:
    """What a report says of the machine and of the program."""

    environment: dict[str, str]
    command: list[str]
    host: str | None
    versions: dict[str, str]
    gpus: list[dict[str, object]]  # columns of TARGET_INFO_GPU
    devices: dict[tuple[int, int], int]  # (pid, CUDA device) -> GPU

    @classmethod
    def from_database(cls, database: Database) -> "Machine":
        capture = _read_pairs(database, "META_DATA_CAPTURE")
        export = dict(_read_pairs(database, "META_DATA_EXPORT"))
        system = dict(_read_pairs(database, "TARGET_INFO_SYSTEM_ENV"))
        versions = {
            "nsight_systems": export.get("EXPORT_PRODUCT_VERSION"),
            "export_schema": export.get("EXPORT_SCHEMA_VERSION"),
            "driver": system.get("NvDriverVersion"),
            "cuda_driver_version": system.get("CudaDriverVersion"),
        }
        variables = [_VARIABLE.match(v) for n, v in capture if n.endswith("ENVIRONMENT_VARIABLE")]
        return cls(
            {m[1]: m[2] for m in variables if m},
            _find_command(capture),
            system.get("Hostname") or None,
            {name: value for name, value in versions.items() if value},
            _list_gpus(database),
            _read_devices(database),
        )

    def facts(self, pid: int, device: int | None, base_ns: int) -> dict[str, object]:
        """Return the columns of table `ranks` for a process."""
        gpu = self.devices.get((pid, device if device is not None else -1), device)
        own = next((g for g in self.gpus if g["id"] == gpu), None)
        rest = [g for g in self.gpus if g is not own]
        listed = [own, *rest] if own else rest
        return {
            "host": self.host,
            "device_name": listed[0].get("name") if listed else None,
            "device_count": len(listed) or None,
            "device_properties": compact_json(listed) if listed else None,
            "versions": compact_json(self.versions) if self.versions else None,
            "base_time_ns": base_ns,
        }


@dataclass(frozen=True)
class Launcher:
    """How ranks were given to processes, as far as the report tells."""

    rank: int | None  # of the one process that was started
    world_size: int | None
    node_rank: int | None
    per_node: int | None

    @classmethod
    def from_machine(cls, machine: Machine) -> "Launcher":
        line = machine.command
        if any(_LAUNCHERS.search(word.rsplit("/", 1)[-1]) for word in line[:4]):
            nodes = _find_option(line, "nnodes")
            per_node = _find_option(line, "nproc[-_]per[-_]node")
            node = _find_option(line, "node[-_]rank")
            if node is None and nodes == 1:
                node = 0
            size = nodes * per_node if nodes and per_node else None
            return cls(None, size, node, per_node)
        variables = machine.environment
        rank = next((whole_number(variables[n]) for n in _RANKS if n in variables), None)
        size = next((whole_number(variables[n]) for n in _SIZES if n in variables), None)
        if rank is not None and not (RANK.believes(rank) and rank < (size or rank + 1)):
            rank = size = None
        return cls(rank, size, None, None)

    @property
    def rank_from(self) -> str:
        return "environment" if self.rank is not None else "launcher's options"

    def ranks(self, processes: int) -> Sequence[int | None]:
        """Rank of each process, in the order of their devices; None: not recorded."""
        if processes == 1 and self.rank is not None:
            return [self.rank]
        if self.node_rank is not None and self.per_node == processes:
            return [self.node_rank * processes + k for k in range(processes)]
        return [None] * processes


def _read_pairs(database: Database, table: str) -> list[tuple[str, str]]:
    read = database.read(table, {"name": STRING, "value": STRING})
    pairs = zip(read["name"].to_pylist(), read["value"].to_pylist(), strict=True)
    return [(name, value) for name, value in pairs if name and value is not None]


def _find_command(capture: list[tuple[str, str]]) -> list[str]:
    """Return the command line that was profiled first."""
    program = next((value for name, value in capture if name.endswith(":COMMAND")), None)
    arguments = {
        int(match[1]): value
        for name, value in capture
        if name.startswith("PROCESS_0:") and (match := _ARGUMENT.search(name))
    }
    return [program or "", *(arguments[k] for k in sorted(arguments))]


def _find_option(line: list[str], name: str) -> int | None:
    """Return the number that a launcher's option has: --nnodes=2 or --nnodes 2."""
    for word, following in zip(line, [*line[1:], ""], strict=True):
        match = re.fullmatch(rf"--{name}(?:=(.*))?", word)
        if match:
            return whole_number(match[1] if match[1] is not None else following)
    return None


def _list_gpus(database: Database) -> list[dict[str, object]]:
    """GPUs, with the names that Kineto's device properties have."""
    columns = {
        "id": "id",
        "totalMemory": "totalGlobalMem",
        "smCount": "numSms",
        "computeMajor": "computeMajor",
        "computeMinor": "computeMinor",
        "clockRate": "clockRate",
        "memoryBandwidth": "memoryBandwidth",
    }
    read = database.read("TARGET_INFO_GPU", {"name": STRING} | dict.fromkeys(columns, INT64))
    return [
        {"id": row["id"], "name": row["name"]}
        | {to: row[name] for name, to in columns.items() if row[name] is not None}
        for row in read.to_pylist()[:1024]
    ]


def _read_devices(database: Database) -> dict[tuple[int, int], int]:
    columns = ("pid", "cudaId", "gpuId")
    read = database.read("TARGET_INFO_CUDA_DEVICE", dict.fromkeys(columns, INT64))
    rows = zip(*(read[c].to_pylist() for c in columns), strict=True)
    return {(pid, cuda): gpu for pid, cuda, gpu in rows if None not in (pid, cuda, gpu)}
