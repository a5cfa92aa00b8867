"""A job's options from a TOML file."""

import textwrap
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from htk.base.core.user_toml import read_toml
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.recording.simulate.config import Config, check_config

_LARGEST = 1e15  # of any number of a job


def from_toml(path: Path, **overrides: Any) -> Config:
    """Return a configuration from a file; what is given besides wins."""
    read = read_toml(path, "a simulated job")
    options = {f.name for f in fields(Config)}
    strange = sorted(read.keys() - options)
    if strange:
        raise UsageError(f"{path} has {', '.join(strange)}; known are {', '.join(sorted(options))}")
    values: Fields = {k: tuple(v) if isinstance(v, list) else v for k, v in read.items()}
    for name, value in values.items():
        _must_suit(path, name, value)
    return check_config(replace(Config(**values), **overrides))


def _must_suit(path: Path, name: str, value: Any) -> None:
    """Raise UsageError unless a value from a file has its option's type."""
    usual = getattr(Config, name)
    if name == "ranks_only":
        usual = ()
    number = (int, float) if usual is None or isinstance(usual, float) else type(usual)
    shown = textwrap.shorten(repr(value), 60, placeholder="…")
    suits = isinstance(value, number) and isinstance(value, bool) == isinstance(usual, bool)
    if not suits or (isinstance(value, int | float) and not abs(value) < _LARGEST):
        raise UsageError(f"{path}: {name} is {shown}, which has the wrong type")
