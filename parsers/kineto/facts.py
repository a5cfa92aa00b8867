"""What a Kineto file says of itself: who recorded it, on what, and with which options."""

from htk.base.mappings import Facts
from htk.base.schema.environment_facts import ENVIRONMENT_KEY
from htk.parsers.common.environment import listed_environment
from htk.parsers.common.log_records import compact_json, text_or_none

OPTIONS = (
    "record_shapes",
    "profile_memory",
    "with_stack",
    "with_flops",
    "with_modules",
)
VERSIONS = (
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "hip_driver_version",
    "rocprofiler-sdk_version",
    "PT_PROFILER_JOB_NAME",
    "PT_PROFILER_JOB_VERSION",
    "schemaVersion",
)


def read_facts(header: Facts) -> dict[str, object]:
    """Columns of table `ranks`, from the keys beside traceEvents. Nothing in it is trusted."""
    job = _take_mapping(header.get("distributedInfo"))
    devices = header.get("deviceProperties")
    devices = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    groups = job.get("pg_config")
    versions = {k: header[k] for k in VERSIONS if isinstance(header.get(k), int | str)}
    if isinstance(job.get("nccl_version"), str):
        versions["nccl_version"] = job["nccl_version"]
    return {
        "host": text_or_none(header.get("host_name")),
        "world_size": read_integer(job.get("world_size")),
        "backend": text_or_none(job.get("backend")),
        "device_name": text_or_none(devices[0].get("name")) if devices else None,
        "device_count": len(devices) or None,
        "device_properties": compact_json(devices) if devices else None,
        "groups": compact_json(groups) if isinstance(groups, list) else None,
        "versions": compact_json(versions) if versions else None,
        "recorded": ",".join(o for o in OPTIONS if header.get(o) in (1, True)),
        "environment": listed_environment(header.get(ENVIRONMENT_KEY)),
        "trace_id": text_or_none(header.get("trace_id")),
        "base_time_ns": base_ns(header),
    }


def read_rank(header: Facts) -> int | None:
    return read_integer(_take_mapping(header.get("distributedInfo")).get("rank"))


def is_of_xla(header: Facts) -> bool:
    """Return whether XLA's trace viewer wrote the file: it alone tells of its ticks."""
    return "highres-ticks" in _take_mapping(header.get("metadata"))


def base_ns(header: Facts) -> int:
    """Return what all times are relative to; 0 before April 2024, when times were absolute."""
    return read_integer(header.get("baseTimeNanoseconds")) or 0


def read_integer(value: object) -> int | None:
    """Return a whole number that may come as text; anything else is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 2**62 else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return None


def _take_mapping(value: object) -> Facts:
    return value if isinstance(value, dict) else {}
