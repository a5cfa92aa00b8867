"""How a job is laid out over its ranks: sizes of data, pipeline and tensor parallelism.

A few flat `key: value` lines (YAML) or one JSON object, beside operation-level rows: dp_size,
pp_size, tp_size, vpp_size, world_size. It tells how many GPUs stand behind each logged worker, and
what `htk.capture` saw of Slurm, Kubernetes and Git (`htk_environment`, a JSON object on its line).
"""

import json
import re

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.schema.environment_facts import ENVIRONMENT_KEY
from htk.parsers.common.environment import listed_environment
from htk.parsers.common.log_records import Issues, read_whole, table_of, whole_number

NAME = "job_layout"

_LINE = re.compile(r"^\s*['\"]?([A-Za-z_]{1,40})['\"]?\s*:\s*['\"]?([^'\"#]*?)['\"]?\s*(?:#.*)?$")
_FACTS = re.compile(rf"^{ENVIRONMENT_KEY}:\s*(\{{.*\}})\s*$", re.MULTILINE)
_MOST_BYTES = 16 * 1024
_NAMES = {
    "dp_size": ("dp_size", "data_parallel_size"),
    "pp_size": ("pp_size", "pipeline_parallel_size", "pipeline_model_parallel_size"),
    "tp_size": ("tp_size", "tensor_parallel_size", "tensor_model_parallel_size"),
    "cp_size": ("cp_size", "dsp_size", "context_parallel_size"),
    "vpp_size": ("vpp_size", "virtual_pipeline_parallel_size"),
    "world_size": ("world_size",),
}


def sniff(head: Head) -> bool:
    if not head.is_complete or len(head.data) > _MOST_BYTES:
        return False
    values = _parse_values(head.data.decode("utf8", "replace"))
    return {"dp_size", "pp_size"} <= {role for role in _NAMES if _read_size(values, role)}


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    text = read_whole(source, issues, options.progress).decode("utf8", "replace")
    values = _parse_values(text)
    row: dict[str, object] = {role: _read_size(values, role) for role in _NAMES}
    if not row["dp_size"] or not row["pp_size"]:
        raise MalformedTrace(f"{source.name}: a job's layout without dp_size and pp_size")
    row["job"] = values.get("trial_name") or values.get("job")
    row["environment"] = listed_environment(_find_environment(text))
    tables = {"job_layouts": table_of("job_layouts", [row], of_one_rank=True)}
    return Parsed(tables | {"parse_issues": issues.table()}, facts={"events": 1})


def _find_environment(text: str) -> object:
    """Return what stands under the environment's key, whatever it is."""
    line = None if text.lstrip().startswith("{") else _FACTS.search(text)
    try:
        parsed = json.loads(line[1] if line else text)
    except (ValueError, RecursionError):
        return None
    if line:
        return parsed
    return parsed.get(ENVIRONMENT_KEY) if isinstance(parsed, dict) else None


def _parse_values(text: str) -> dict[str, str]:
    """Flat keys and values, of YAML lines or a JSON object."""
    if text.lstrip().startswith("{"):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        return {k: str(v) for k, v in parsed.items()} if isinstance(parsed, dict) else {}
    matches = (_LINE.match(line) for line in text.splitlines()[:200])
    return {m[1]: m[2] for m in matches if m}


def _read_size(values: dict[str, str], role: str) -> int | None:
    sizes = (whole_number(values.get(name)) for name in _NAMES[role])
    return next((size for size in sizes if size and 0 < size < 1 << 31), None)
