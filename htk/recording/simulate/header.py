"""What a Kineto file says before its events."""

import json
from hashlib import md5

from htk.base.mappings import Fields
from htk.recording.simulate.clock import BASE_NS
from htk.recording.simulate.config import Config
from htk.recording.simulate.groups import Group

_OF_AMD = {"maxSharedMemoryPerMultiProcessor": 65536}


def _of_a_unit(shared_kib: int) -> dict[str, int]:
    """Registers and shared memory of an NVIDIA multiprocessor; a kilobyte of it is reserved."""
    shared = shared_kib * 1024
    return {
        "regsPerMultiprocessor": 65536,
        "sharedMemPerBlockOptin": shared - 1024,
        "sharedMemPerMultiprocessor": shared,
    }


_OF_A_UNIT = {
    "ampere": _of_a_unit(164),
    "ada": _of_a_unit(100),
    "hopper": _of_a_unit(228),
    "blackwell": _of_a_unit(228),
}


def write_header(config: Config, rank: int, groups: dict[str, Group]) -> str:
    """Return everything up to the first event."""
    facts: Fields = {
        "schemaVersion": 1,
        "deviceProperties": [_describe_device(config, n) for n in range(config.gpus_per_node)],
        **_list_versions(config),
        "record_shapes": 1,
        "profile_memory": 1,
        **({"with_stack": 1} if config.stacks else {}),
        "trace_id": _trace_id(config, rank),
        **({"host_name": host_name(config, rank)} if config.host_names else {}),
        "distributedInfo": _describe_distributed(config, rank, groups),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
    }
    lines = "".join(f'  "{k}": {json.dumps(v)},\n' for k, v in facts.items())
    return f'{{\n{lines}  "traceEvents": [\n'


def host_name(config: Config, rank: int) -> str:
    return f"node-{rank // config.gpus_per_node}"


def _list_versions(config: Config) -> dict[str, float]:
    if config.device.vendor == "amd":
        return {
            "roctracer_version": 4.1,
            "hip_runtime_version": 70051831,
            "hip_driver_version": 70051831,
        }
    return {"cupti_version": 130000, "cuda_runtime_version": 13000, "cuda_driver_version": 13000}


def _describe_device(config: Config, number: int) -> Fields:
    device = config.device
    major, minor = map(int, (device.capability or "0.0").split("."))
    return {
        "id": number,
        "name": device.device_name,
        "totalGlobalMem": round(device.memory_gb * 1e9),
        "computeMajor": major,
        "computeMinor": minor,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "warpSize": 64 if device.vendor == "amd" else 32,
        "sharedMemPerBlock": 65536 if device.vendor == "amd" else 49152,
        "numSms": device.units,
        **_OF_A_UNIT.get(device.architecture, _OF_AMD),
    }


def _trace_id(config: Config, rank: int) -> str:
    job = rank // config.job_ranks
    text = f"{config.seed}.{job}" if job else f"{config.seed}"
    return md5(text.encode(), usedforsecurity=False).hexdigest().upper()


def _describe_distributed(config: Config, rank: int, groups: dict[str, Group]) -> Fields:
    facts: Fields = {
        "backend": "nccl",
        "rank": rank % config.job_ranks,
        "world_size": config.job_ranks,
    }
    if config.named_groups:
        facts |= _list_groups(config, rank, groups)
    return facts | {"nccl_version": "2.29.7"}


def _list_groups(config: Config, rank: int, groups: dict[str, Group]) -> Fields:
    """Return the process groups that a rank is in."""
    listed = {"0": ("default_pg", list(range(config.job_ranks)))}
    for group in groups.values():
        own = group.of_rank[rank]
        if group.size > 1:
            members = [member % config.job_ranks for member in group.members[own]]
            listed.setdefault(group.names[own], (group.description, members))
    return {
        "pg_count": len(listed),
        "pg_config": [
            {
                "pg_name": name,
                "pg_desc": description,
                "backend_config": "cuda:nccl",
                "pg_size": len(ranks),
                "ranks": ranks,
            }
            for name, (description, ranks) in listed.items()
        ],
    }
