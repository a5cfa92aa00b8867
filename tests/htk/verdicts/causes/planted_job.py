"""The job of docs/recommendations.md, with a fault planted by options of `htk simulate`."""

import re
from typing import Any

from htk.recording.simulate.config import Config, check_config

JOB: dict[str, Any] = {"model": "gpt3-126m", "layers": 3, "gpu": "a100-80gb", "gpus_per_node": 4,
                       "micro_batch": 8, "seq": 1024, "steps": 6}  # fmt: skip


def job_of(flags: str, seed: int) -> Config:
    options: dict[str, Any] = {"seed": seed}
    for flag, value in re.findall(r"--(\S+) (\S+)", flags):
        name = flag.replace("-", "_")
        if name == "plant":
            options["plants"] = (*options.get("plants", ()), value)
        else:
            options[name] = int(value) if value.isdigit() else value
    return check_config(Config(**(JOB | options)))
