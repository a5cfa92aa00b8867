"""Kernels, or those of an operator, made faster, fused or removed."""

import re

import numpy as np

from htk.analyses.whatif.scene import Scene
from htk.analyses.whatif.values import factor
from htk.errors import UsageError

NAME = "replace"
HELP = "Kernels or operators by pattern, so many times faster, or gone: PATTERN=2x, PATTERN=gone."


def apply(scene: Scene, value: str) -> Scene:
    pattern, mark, how = value.rpartition("=")
    if not mark:
        raise UsageError(f"{NAME} {value!r}: PATTERN=2x or PATTERN=gone was expected")
    chosen = _named(scene, pattern)
    if not chosen.any():
        raise UsageError(f"{NAME}: no kernel or operator of the step is named like {pattern!r}")
    length = scene.lengths()
    new = np.zeros(len(length)) if how == "gone" else length / factor(how, NAME)
    share = 100 * int(length[chosen].sum()) / max(int(length.sum()), 1)
    return (
        scene.with_lengths(chosen, new)
        .doubted("compute", 0.1)
        .said(
            f"{int(chosen.sum())} activities ({share:.1f} % of GPU time) match {pattern!r}; "
            "their launches stay"
        )
    )


def _named(scene: Scene, pattern: str) -> np.ndarray:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{NAME} {pattern!r}: {error}") from None
    acts = scene.graph.activities
    by_name = np.array([bool(wanted.search(n)) for n in acts.names] + [False])[acts.name]
    by_op = np.array([bool(op and wanted.search(op)) for op in scene.facts.op], bool)
    return np.asarray(by_name | by_op)
