"""Pickles of plain containers: read without running anything, and as far as a cut one goes.

Before a pickle is loaded its opcodes are followed once: one that asks for memory which its size
does not account for (a memo slot far beyond its end, an integer of thousands of digits), or that
hashes nested tuples, is refused.
"""

import io
import pickle
import pickletools
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any


class RefusedPickle(Exception):
    """The pickle asks for more than plain data; the text says for what."""


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that knows containers, texts and numbers, and no global."""

    def find_class(self, module: str, name: str) -> Any:
        raise RefusedPickle(f"to import {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise RefusedPickle("for a persistent object")


def load_plain(data: bytes, unpickler: type[PlainUnpickler] = PlainUnpickler) -> Any:
    """Return what the pickle holds. Raises `Refused`, or whatever a broken pickle leads to."""
    objects = sum(data.count(code) for code in _CONTAINERS)
    if objects > _MOST_CONTAINERS:
        raise RefusedPickle(f"for {objects:,} containers, which would fill the memory")
    reader = unpickler(io.BytesIO(data), encoding="utf-8", errors="replace")
    _Check(data, reader.find_class).run()
    return reader.load()


def is_pickle(data: bytes) -> bool:
    """Return whether the data begins like a pickle of protocol 2 to 5."""
    return data[:1] == b"\x80" and data[1:2] <= b"\x05"


_MOST_CONTAINERS = 32 << 20  # some 2 GiB when they are empty
_CONTAINERS = (b"}", b"]", b"\x85", b"\x86", b"\x87", b"(l", b"(d", b"(t")
_LONGEST_INTEGER = 16  # bytes; addresses and times have eight or nine
_LONG_BINPUT, _BINPUT, _STOP, _GLOBAL, _STACK_GLOBAL = b"r", b"q", b".", b"c", b"\x93"
# What no pickler writes for plain data. Text opcodes belong to protocols 0 and 1.
_LEFT_OUT = {"LONG_BINPUT", "STOP", "DUP", "POP", "POP_MARK", "EMPTY_SET", "ADDITEMS", "FROZENSET"}
_LEFT_OUT |= {"BUILD", "NEWOBJ", "NEWOBJ_EX", "OBJ", "STACK_GLOBAL", "NEXT_BUFFER"}
_TUPLES = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
_NAMES = {op.code.encode("latin1"): op.name for op in pickletools.opcodes}
_TUPLE_CODES = [code for code, name in _NAMES.items() if name in _TUPLES]
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_COUNTED = {
    op.code.encode("latin1"): (_LENGTH_BYTES[op.arg.n], op.name in ("LONG1", "LONG4"))
    for op in pickletools.opcodes
    if op.arg is not None and op.arg.n in _LENGTH_BYTES
}
# What may follow a tuple that stays without a memo slot: whatever lies on it hides it for good.
_AFTER_TUPLE = rb"(?=[Xhj\x8cKMJGN\x88\x89\x8auseat\x85-\x87.])"
_PUSHES = b"Xh j\x8cKMJN\x88\x89\x8a".replace(b" ", b"")  # what elements of plain tuples are


class _Check:
    """Follows the opcodes, most of them in long runs, and builds nothing."""

    def __init__(self, data: bytes, find_class: Callable[[str, str], Any]) -> None:
        self._data = data
        self._find_class = find_class
        self._run, self._token = _plain_run(len(data) >> 16, data[1:2] >= b"\x04")
        self._spans: list[tuple[int, int]] = []  # of runs
        self._stops: list[int] = []  # between one run and the next
        self._tuple_slots: set[int] = set()
        self._must_walk = False

    def run(self) -> None:
        """Refuse a pickle that would allocate or compute more than its size accounts for."""
        data = self._data
        position = 0
        while True:
            if match := self._run.match(data, position):
                self._spans.append(match.span())
                position = match.end()
            if position >= len(data) or data[position : position + 1] == _STOP:
                break
            self._stops.append(position)
            position = self._take_opcode(position)
        if self._must_walk:
            # Keys of nested, shared tuples take for ever to hash.
            walk = _Walk()
            for opcode, argument, _ in pickletools.genops(data):
                walk.step(opcode.name, argument)

    def _take_opcode(self, position: int) -> int:
        """Take the opcode that ended a run; return where the next one lies."""
        data = self._data
        code = data[position : position + 1]
        if code in _COUNTED:
            return _after_counted(data, position)
        if code == _GLOBAL:
            return self._check_global(position)
        if code == _STACK_GLOBAL:
            raise RefusedPickle(f"to import {'.'.join(self._last_texts())}")
        if code in _TUPLE_CODES:
            self._shared_tuple(position + 1)
            return position + 1
        if code == _LONG_BINPUT and len(data) >= position + 5:
            raise RefusedPickle(f"for a memo slot far beyond its {len(data):,} bytes")
        if len(data) - position < 9:  # an argument is cut
            raise EOFError("pickle data was truncated")
        name = _NAMES.get(code, repr(code))
        raise RefusedPickle(f"for {name} at byte {position:,}, which plain data never needs")

    def _shared_tuple(self, position: int) -> None:
        """Note the memo slot of a tuple; one that may hold such a tuple asks for a walk."""
        code = self._data[position : position + 1]
        argument = self._data[position + 1 :][:4]
        size = {b"\x85": 1, b"\x86": 2, b"\x87": 3}.get(self._data[position - 1 : position], 0)
        if code not in (_BINPUT, _LONG_BINPUT) or not self._is_flat(size):
            self._must_walk = True
        width = 1 if code == _BINPUT else 4
        self._tuple_slots.add(int.from_bytes(argument[:width], "little"))

    def _is_flat(self, size: int) -> bool:
        """Return whether the last `size` values are texts, numbers or from other memo slots."""
        pushed = 0
        for opcode in self._walk_backwards():
            code = opcode[:1]
            if pushed == size:
                return size > 0
            if code in (_BINPUT, _LONG_BINPUT):
                continue
            if code not in _PUSHES or (
                code in b"hj" and int.from_bytes(opcode[1:], "little") in self._tuple_slots
            ):
                return False
            pushed += 1
        return 0 < size == pushed

    def _walk_backwards(self) -> Iterator[bytes]:
        """Yield the opcodes before the last stop, the last one first."""
        for k in range(len(self._spans) - 1, -1, -1):
            run = self._data[slice(*self._spans[k])]
            yield from reversed([match[0] for match in self._token.finditer(run)])
            if k:
                yield self._data[self._stops[k - 1] : self._stops[k - 1] + 1]

    def _last_texts(self) -> list[str]:
        """Return the two texts before the last stop: what a module and its member are called."""
        texts = []
        for stop in self._stops[-3:-1]:
            width, _ = _COUNTED.get(self._data[stop : stop + 1], (0, False))
            size = int.from_bytes(self._data[stop + 1 :][:width], "little")
            text = self._data[stop + 1 + width :][: min(size, 80)]
            texts.append(text.decode("utf8", "replace"))
        return texts

    def _check_global(self, position: int) -> int:
        first = self._data.find(b"\n", position)
        end = self._data.find(b"\n", first + 1)
        if first < 0 or end < 0:
            raise EOFError("pickle data was truncated")
        module = self._data[position + 1 : first]
        name = self._data[first + 1 : end]
        self._find_class(module.decode("utf8", "replace"), name.decode("utf8", "replace"))
        return end + 1


def _after_counted(data: bytes, position: int) -> int:
    """Return where the opcode after one of variable length lies."""
    width, is_integer = _COUNTED[data[position : position + 1]]
    start = position + 1 + width
    size = int.from_bytes(data[position + 1 : start], "little")
    if is_integer and size > _LONGEST_INTEGER:
        raise RefusedPickle(f"for an integer of {size:,} bytes")
    if start + size > len(data):
        raise EOFError("pickle data was truncated")
    return start + size


@cache
def _plain_run(blocks: int, numbered: bool) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return patterns of a run of opcodes of fixed length, whose memo slots lie within so many
    64 KiB blocks, and of one of them. `numbered`: memo slots are counted, as in protocols 4
    and 5."""
    by_size: dict[int, bytes] = {}
    for op in pickletools.opcodes:
        size = 0 if op.arg is None else op.arg.n
        if size >= 0 and op.name not in _LEFT_OUT | _TUPLES:
            by_size[size] = by_size.get(size, b"") + op.code.encode("latin1")
    choices = [
        b"[" + re.escape(codes) + b"]" + (b".{%d}" % size if size else b"")
        for size, codes in sorted(by_size.items())
    ]
    choices.append(b"[" + re.escape(b"".join(_TUPLE_CODES)) + b"]" + _AFTER_TUPLE)
    choices += [b"\x8a" + bytes([n]) + b".{%d}" % n for n in (8, 7, 5, 6)]  # times, addresses
    if numbered:  # two numbers, as of the pools of a memory snapshot
        choices.insert(0, b"(?:K.){2}\x86\x94")
    third = min(blocks, 255)
    fourth = min(blocks >> 8, 127)
    slot = b"r..[\\x00-\\x%02x]\\x00" % third if not fourth else b"r...[\\x00-\\x%02x]" % fourth
    either = b"|".join([*choices, slot])
    return re.compile(b"(?:" + either + b")*+", re.DOTALL), re.compile(either, re.DOTALL)


def left_over(data: bytes) -> list[Any]:
    """Return what lies on the stack where a cut pickle ends; of one dict its keys and values."""
    walk = _Walk()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            walk.step(opcode.name, argument)
    except MemoryError:
        raise
    except Exception:  # the cut: what came before it is what we are after
        pass
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
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[int(argument)])
        elif name in ("SETITEMS", "APPENDS", "TUPLE", "LIST", "DICT"):
            self._collect(name)
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            stack[-size:] = [tuple(stack[-size:])]
        elif name == "SETITEM":
            value = stack.pop()
            key = stack.pop()
            stack[-1][_check_key(key)] = value
        elif name == "APPEND":
            value = stack.pop()
            stack[-1].append(value)
        elif name == "REDUCE":  # what torch marks lists with: the first argument as it is
            arguments = stack.pop()
            stack[-1] = arguments[0]
        elif argument is not None and name not in ("PROTO", "FRAME"):
            stack.append(argument)  # numbers, texts and names of what is called
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise RefusedPickle(f"for {name}, which plain data never needs")

    def _collect(self, name: str) -> None:
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        if name == "APPENDS":
            self.stack[-1].extend(items)
        elif name in ("TUPLE", "LIST"):
            self.stack.append(tuple(items) if name == "TUPLE" else items)
        else:
            pairs = {
                _check_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)
            }
            if name == "DICT":
                self.stack.append(pairs)
            else:
                self.stack[-1].update(pairs)


def _check_key(value: Any) -> Any:
    if isinstance(value, tuple):
        raise RefusedPickle("for a tuple as a key")
    return value


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
