"""HLO operators as TPUs run them: what their text, category and name tell of their work.

The long name of an operator is its line of the program:
    %all-reduce.3 = f32[8,128]{1,0:T(8,128)} all-reduce(f32[8,128]{1,0} %fusion), replica_groups=…
"""

import re
from dataclasses import dataclass, replace
from math import prod

from htk.base.mappings import Fields
from htk.base.names.collectives import comm_rule
from htk.base.names.kinds import kind_of
from htk.parsers.xplane.space import as_text

_LONGEST = 1 << 16  # characters of a line that are looked at
_MOST_BYTES = 1 << 62
_INSTRUCTION = re.compile(r"%([\w.-]+) = ")
_OPCODE = re.compile(r"[\]})] ([a-z][\w-]*)\(")
_HALF = re.compile(r"-(start|done)$")
_OPERAND = re.compile(r"%([\w.-]+)")
_SHAPE = re.compile(
    r"\b([a-z]{1,9})(\d{0,3})\w{0,12}\[((?:\d{1,18}(?:,\d{1,18}){0,15})?)\](?:\{([^}]{0,200})\})?"
)
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_TILED = re.compile(r"replica_groups=\[\d{1,9},(\d{1,9})\]<=")
_ON_HOST = "S(5)"  # a layout in the memory of the host
_CONTROL = ("while", "conditional", "call")
_COPIES = ("copy", "slice", "dynamic-slice", "dynamic-update-slice")  # if they are asynchronous
_WAYS = {"infeed": "HtoD", "outfeed": "DtoH", "send": "DtoH", "recv": "HtoD"}
_MESSAGES = ("send", "recv")
_FAMILIES = {"loop": "elementwise", "data formatting": "copy"}  # by category
_PRODUCT = re.compile(r"dot_general|matmul|einsum|\bdot\b", re.IGNORECASE)
_SAME_SIZE = ("all_reduce", "all_to_all", "send_recv", "broadcast")
_BITS = {"pred": 8, "token": 0, "opaque": 0}


@dataclass(frozen=True)
class HloOperator:
    """An operator of a program: what is the same each time it runs."""

    name: str
    instruction: str  # its name in the program; that to be shown may be of many: async-copy
    half: str  # start or done: of an operator that runs beside others
    operand: str  # the first one; of a done its start
    is_control: bool  # runs others in it
    kind: str = "compute"
    family: str = "other"
    activity: int = 0  # 0 kernel, 1 copy
    size: int = -1  # bytes that a copy moves
    collective: Fields | None = None


def read_operator(name: str, text: str, facts: Fields) -> HloOperator:
    """Return what the name to be shown, the long name and the facts of an operator tell."""
    text = text[:_LONGEST]
    opcode = _OPCODE.search(text)
    stem = name.removeprefix("%").rstrip("0123456789.")
    code = opcode[1] if opcode else stem
    ending = _HALF.search(code) or _HALF.search(stem)
    half = ending[1] if ending else ""
    code = _HALF.sub("", code)
    arguments = _find_arguments(text, opcode.end()) if opcode else ""
    target = text[: opcode.start() + 1] if opcode else ""
    operands = _OPERAND.findall(arguments)
    instruction = _INSTRUCTION.match(text)
    own_name = instruction[1] if instruction else name
    name = own_name if half else name
    operator = HloOperator(name, own_name, half, "".join(operands[:1]), code in _CONTROL)
    category = as_text(facts.get("hlo_category")).lower().removesuffix(" fusion")
    collective = next(filter(None, map(_collective_type, (category, code, stem))), None)
    of_host = "is_host_transfer=true" in text or "host" in category
    if code in _MESSAGES and not of_host:
        collective = code
    if collective:
        output = "" if half else target  # a start makes what it took and more
        stated = {"library": "xla", **_describe_collective(collective, text, arguments, output)}
        return replace(operator, kind="comm", family="communication", collective=stated)
    if code in _WAYS or (half and (code in _COPIES or category == "async-copy")):
        moved = target if code == "infeed" else arguments
        size = None if code == "recv" else _count_bytes(moved)
        way = _WAYS.get(code) or _find_direction(arguments, target)
        copy = replace(operator, kind="memory", family="copy", activity=1)
        copy = replace(copy, name=f"{name} ({way})") if way else copy
        return copy if size is None else replace(copy, size=size)
    return replace(operator, family=_find_family(name, category, as_text(facts.get("tf_op"))))


def _collective_type(word: str) -> str | None:
    rule = comm_rule(word)
    return rule.collective if rule is not None and rule.library == "xla" else None


def _find_family(name: str, category: str, tf_op: str) -> str:
    if category == "convolution":
        return "gemm" if _PRODUCT.search(tf_op) else "convolution"
    family = kind_of(name, "kernel").family
    if family == "other" and category:
        return _FAMILIES.get(category) or kind_of(category, "kernel").family
    return family


def _find_arguments(text: str, begin: int) -> str:
    """Return what stands between an operator's parentheses; layouts have parentheses too."""
    depth = 1
    for k in range(begin, len(text)):
        depth += (text[k] == "(") - (text[k] == ")")
        if not depth:
            return text[begin:k]
    return text[begin:]


def _find_direction(arguments: str, target: str) -> str:
    """Return from where to where a copy goes: its layouts say which memory each side is in."""
    shapes = [_SHAPE.search(side) for side in (arguments, target)]
    if not all(shapes):
        return ""
    return "to".join("H" if shape and _ON_HOST in (shape[4] or "") else "D" for shape in shapes)


def _count_bytes(text: str) -> int | None:
    """Return the bytes of all shapes in a text; None: it has none, or their types are not known."""
    total = 0
    shapes = list(_SHAPE.finditer(text))
    for shape in shapes:
        bits = _BITS.get(shape[1], int(shape[2] or 0))
        if not bits and shape[1] not in _BITS:
            return None
        total += prod(int(n) for n in shape[3].split(",") if n) * bits
    return total // 8 if shapes and total < _MOST_BYTES else None


def _describe_collective(kind: str, text: str, arguments: str, target: str) -> Fields:
    """Return type, sizes and group of a collective, as far as its line tells."""
    into = _count_bytes(arguments)
    if into is None and kind in _SAME_SIZE:
        into = _count_bytes(target)
    tiled = _TILED.search(text)
    listed = _LISTED.search(text)
    ranks = int(tiled[1]) if tiled else len(listed[1].split(",")) if listed else None
    if kind in _SAME_SIZE or into is None:
        out = into
    elif ranks and kind == "all_gather" and into * ranks < _MOST_BYTES:
        out = into * ranks
    elif ranks and kind == "reduce_scatter":
        out = into // ranks
    else:
        out = None
    return {"type": kind, "group_size": ranks, "in_bytes": into, "out_bytes": out}
