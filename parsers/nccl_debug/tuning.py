"""What NCCL chose: algorithm, protocol and channels of a call, and its tuning table."""

import re

from htk.base.mappings import Fields
from htk.base.names.collectives import NCCL_ALGORITHMS, NCCL_PROTOCOLS, collective_type
from htk.parsers.nccl_debug.message import Message

CHOICE = re.compile(r"\b(?:(\w{1,64}): )?(\d{1,19}) Bytes -> Algo (\S{1,32}) proto (\S{1,32})")
_LANES = re.compile(r"channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\}")
_PREDICTED = re.compile(r"time ([\d.]{1,20})")
SPECIAL = re.compile(
    r"\b(\w{1,64}) \[(Symmetric|Copy Engine|Hierarchical CE)\]: (\d{1,19}) Bytes -> "
    r"(?:Kernel (\S{1,255}) nchannels (\d{1,4}))?"
)
_TABLE_HEAD = re.compile(r"^\s{0,99}(Algorithm|Protocol)\s{0,99}\|")
_TABLE_ROW = re.compile(
    r"^\s{0,99}(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s{0,99}\|(.*)"
)
_CELL = re.compile(r"([\d.]{1,20})/\s{0,20}([\d.]{1,20})")


def parse_choice(text: str, match: re.Match[str]) -> Fields:
    """Return the row of a line that says what a call was given."""
    lanes = _LANES.search(text)
    predicted = _PREDICTED.search(text)
    return {
        "type": collective_type(match[1]) if match[1] else None,
        "size_bytes": int(match[2]),
        "algorithm": _name_code(match[3], NCCL_ALGORITHMS),
        "protocol": _name_code(match[4], NCCL_PROTOCOLS),
        "channels": int(lanes[2]) - int(lanes[1]) + 1 if lanes else None,
        "time_us": float(predicted[1]) if predicted else None,
    }


def parse_special(match: re.Match[str]) -> Fields:
    """Return the row of a call that takes a symmetric kernel or the copy engines."""
    return {
        "type": collective_type(match[1]),
        "size_bytes": int(match[3]),
        "algorithm": match[4] or match[2],
        "channels": int(match[5]) if match[5] else None,
    }


def is_for(call: Fields, row: Fields) -> bool:
    """Return whether a choice is that call's: some log bytes of the input, some of the output."""
    if row["type"] is not None and row["type"] != call["type"]:
        return False
    sizes_of = (call.get("in_bytes"), call.get("out_bytes"))
    return "algorithm" not in call and row["size_bytes"] in sizes_of


class TuningTables:
    """Reads the tuning table of each process: latency/bandwidth of algorithms and protocols."""

    def __init__(self) -> None:
        self._heads: dict[tuple[str, str], dict[str, list[str]]] = {}

    def read(self, message: Message) -> list[Fields] | None:
        """Return the rows of a line of the table; None for a line that is not of it."""
        head = _TABLE_HEAD.match(message.text)
        heads = self._heads.setdefault(message.process, {})
        if head:
            heads[head[1]] = re.findall(r"[A-Za-z]\w*", message.text)[1:]
        row = _TABLE_ROW.match(message.text)
        if row is None or not heads.get("Algorithm"):
            return [] if head else None
        protocols = heads.get("Protocol", [])
        algorithms = heads["Algorithm"]  # three at a time, each with its protocols
        return [
            {
                "type": collective_type(row[1]),
                "algorithm": _spell_upper(algorithms[k // 3]),
                "protocol": protocols[k].upper() if k < len(protocols) else None,
                "time_us": float(latency),
                "bandwidth_gbps": float(speed),
            }
            for k, (latency, speed) in enumerate(_CELL.findall(row[2]))
            if float(speed) and k // 3 < len(algorithms)
        ]


def _name_code(text: str, names: tuple[str, ...]) -> str:
    """Older logs print numbers."""
    return names[int(text)] if text.isdigit() and int(text) < len(names) else text.upper()


def _spell_upper(name: str) -> str:
    """CollNetDirect is COLLNET_DIRECT elsewhere."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper().replace("COLL_NET", "COLLNET")
