"""What Holistic Trace Analysis (HTA) says of its traces, from the shared truths."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def hta_truth(shared: Path) -> dict[str, Any]:
    truths: dict[str, Any] = json.loads((shared / "truth/hta_expected.json").read_text())
    return truths


def asserted(shared: Path, name: str) -> Any:
    """Return what one of its tests expects."""
    return next(t["expect"] for t in hta_truth(shared)["asserted"] if t["id"] == name)
