"""The sizes of a model as options: what commands that describe one share."""

from collections.abc import Callable
from typing import Any

import click

# By name in `htk.physics.decoder`, from the outside inwards.
SIZES = {
    "layers": "Layers of the model.",
    "hidden": "Width of the model.",
    "heads": "Attention heads.",
    "kv_heads": "Key-value heads, if fewer.",
    "ffn": "Width of the feed-forward layer.",
    "vocab": "Size of the vocabulary.",
}
SIZE_OPTIONS = tuple(
    click.option("--" + name.replace("_", "-"), type=int, help=words)
    for name, words in SIZES.items()
)


def size_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(SIZE_OPTIONS):
        function = option(function)
    return function
