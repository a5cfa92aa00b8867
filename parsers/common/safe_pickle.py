"""Pickles of plain containers: read without running anything, and as far as a cut one goes."""

import pickle
import pickletools
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Refused(Exception):
    """The pickle asks for more than plain data."""


class PlainUnpickler(pickle.Unpickler):
    """Knows containers, texts and numbers, and no global."""

    def find_class(self, module: str, name: str) -> Any:
        raise Refused(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise Refused("a persistent object")


def is_pickle(data: bytes) -> bool:
    """Does it begin like a pickle of protocol 2 to 5?"""
    return data[:1] == b"\x80" and data[1:2] <= b"\x05"


def left_over(data: bytes) -> list[Any]:
    """What lies on the stack where a cut pickle ends; of one dict its keys and values."""
    walk = _Walk()
    with suppress(Exception):  # the cut: what came before it is what we are after
        for opcode, argument, _ in pickletools.genops(data):
            walk.step(opcode.name, argument)
    if len(walk.stack) == 1 and isinstance(walk.stack[0], dict):
        return [part for item in walk.stack[0].items() for part in item]
    return walk.stack


class _Walk:
    """A pickle's opcodes, one after the other; only those of plain data do anything."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self.memo[int(argument)])
        elif name in ("SETITEMS", "APPENDS", "TUPLE", "LIST", "DICT"):
            self._collect(name)
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            stack[-size:] = [tuple(stack[-size:])]
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1][key] = value
        elif name == "APPEND":
            value = stack.pop()
            stack[-1].append(value)
        elif argument is not None and name not in ("PROTO", "FRAME"):
            stack.append(argument)  # numbers and texts

    def _collect(self, name: str) -> None:
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        pairs = zip(items[::2], items[1::2], strict=True)
        if name == "SETITEMS":
            self.stack[-1].update(pairs)
        elif name == "APPENDS":
            self.stack[-1].extend(items)
        else:
            made = {"TUPLE": tuple, "LIST": list}.get(name)
            self.stack.append(made(items) if made else dict(pairs))


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
