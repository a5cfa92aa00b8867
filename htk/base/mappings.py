"""Types of what is handed on by name: fields, facts, tables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Fields = dict[
    str, Any
]  # of a row, of a record in a file, of a command: whoever has them may change them
Facts = Mapping[str, Any]  # the same, to be read only
NamedTables = Mapping[str, "pa.Table"]
