"""Traces without identifying text; times, links and kinds of work stay as they were.

What may stay is listed: public names as a whole, numbers where a key is known to hold numbers.
Every other text becomes another one, the same everywhere, and `scrub_check` looks for it in what
was written. One `Replacements` serves all ranks.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection
from enum import IntEnum
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from htk.answers.export.pieces import EventPieces
from htk.answers.export.scrub_kernels import COMM_STEMS, STEMS, is_stem, kernel_stem
from htk.base.names.phases import phase_of_range
from htk.base.names.public import is_public, listed_names
from htk.parsers.kineto.columns import COLUMNS
from htk.physics.detected import detect_gpu
from htk.physics.hardware import load_catalogue
from htk.quantities.derived.host_states import span_state


class Holds(IntEnum):
    """What stands behind a key."""

    ANYTHING = 0  # not known: numbers are replaced too
    NUMBERS = 1
    SHAPES = 2  # left empty: another shape would be another number of operations
    STACK = 3
    VALUES = 4  # of arguments: emptied


_NUMERIC_TEXT = {
    "pid", "tid", "id", "grid", "block", "channel_type", "stream_id", "finished", "size",
    "Comms Id", "Process Group Name", "Process Group ID", "Process Group Ranks", "In split size",
    "Out split size", "Communicator_id", "Is asynchronized op", "Input Tensors start",
    "Output Tensors start", "Addr", "num_warps", "num_stages", "sort_index",
}  # fmt: skip
# Keys that htk does not read and that any trace of PyTorch may hold.
_OTHER_NUMBERS = {
    "Trace iteration", "Profiler Event Index", "packet_ptr", "sqid", "seq_id", "host_ctx",
    "k_work_ptr", "external ts", "src", "dst", "ptr", "tts", "tdur", "bind_id", "weight",
}  # fmt: skip
_OTHER_KEYS = {"args", "Trace name", "Scope", "scope", "direction", "mem size", "cname", "sf", "v"}
_SHAPES = {
    "Input Dims", "Input dims", "Input Shapes", "Output Dims", "in_dims", "input_shapes",
    "Input Strides", "Input strides",
}  # fmt: skip
_VALUES = {"Concrete Inputs", "kwinputs"}
_STACKS = {"Call stack", "Module Hierarchy", "stack", "frames", "CallFrom"}

_NUMBER_AS_TEXT = re.compile(
    r"-?\d{1,20}(?:\.\d{1,9})?|0x[0-9a-fA-F]{1,16}|nan|-?inf|N/A"
    r"|(?:grid)?[\[(](?:-?\d{1,20}(?:\.\.\.)?(?:, ?(?:-?\d{1,20}|\.\.\.))*,?)?[\])]"
)
_NUMBER = re.compile(rb"-?\d[\d.eE+-]*")
_LISTS = re.compile(rb"\[[\d\s,\[\]-]*\]")
_AFTER_OBJECT = re.compile(rb"\}[\s,\]]*-?\d")
# What comes before a name that is replaced.
_PREFIX = re.compile(
    r"autograd::engine::evaluate_function: |nn\.Module: |Optimizer\.(?:step|zero_grad)#"
    r"|FSDP::(?:pre_forward|post_forward|pre_backward|post_backward|all_gather|all_gather_copy_out"
    r"|reduce_scatter|all_reduce|post_backward_reduce|post_backward_reshard"
    r"|post_backward_accumulate|root_pre_forward)(?: |$)"
    r"|FullyShardedDataParallel\.(?:forward|_pre_forward|_post_forward|_pre_backward"
    r"|_post_backward)(?: |$)|## Call CompiledFxGraph |Torch-Compiled Region: "
    r"|torch::autograd::CppNode<"
)
_OPTIMIZER_CALL = re.compile(r"(\w+)\.(?:step|zero_grad)")
_MODULE = re.compile(r"(.*)_(\d{1,6})", re.DOTALL)
# What tells the host's state or the phase that a range stands for.
_TELLING_STEMS = ("gc:range", "recompile", "data_load", "optimizer", "backward", "forward")
_STEMS = ("op", "function", "range", "key", "frame", "text", "Module", *_TELLING_STEMS)

_HEADER_NUMBERS = {
    "schemaVersion", "cupti_version", "cuda_runtime_version", "cuda_driver_version",
    "hip_runtime_version", "hip_driver_version", "baseTimeNanoseconds", "profile_memory",
    "record_shapes", "with_stack", "with_flops", "with_modules", "rank", "world_size", "pg_count",
    "pg_size", "ranks", "pg_name", "num_errors",
    # of a device
    "id", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock",
    "maxThreadsPerMultiprocessor", "regsPerBlock", "warpSize", "sharedMemPerBlock", "numSms",
    "regsPerMultiprocessor", "sharedMemPerBlockOptin", "sharedMemPerMultiprocessor", "gpuMemory",
}  # fmt: skip
_HEADER_VERSIONS = {"nccl_version", "roctracer_version", "cuda_version"}
_HEADER_MEMBERS = {
    "schemaVersion", "deviceProperties", "cupti_version", "cuda_runtime_version",
    "cuda_driver_version", "cuda_version", "hip_runtime_version", "hip_driver_version",
    "roctracer_version", "displayTimeUnit", "baseTimeNanoseconds", "profile_memory",
    "record_shapes", "with_stack", "with_flops", "with_modules", "distributedInfo", "traceName",
    "host_name", "hostname", "worker_name", "nccl_version",
}  # fmt: skip
_HEADER_KEYS = _HEADER_MEMBERS | _HEADER_NUMBERS | {"name", "backend", "backend_config"}
_HEADER_KEYS |= {"pg_config", "pg_desc"}
_OTHER_DEVICE_WORDS = (
    "NVIDIA AMD Instinct Tesla Radeon Graphics SXM2 SXM3 SXM4 SXM5 PCIe PCIE HBM2 HBM2e HBM3 HBM3e"
    " NVL OAM 16GB 32GB 40GB 80GB 94GB 96GB 141GB"
)
_MOST_REWRITTEN = 1 << 17  # texts kept to be rewritten at once when they are met again
_VERSION = re.compile(r"\d{1,2}(?:\.\d{1,3}){1,2}")


@cache
def known_keys() -> dict[str, Holds]:
    """Return every key that stays, and what stands behind it."""
    holds = dict.fromkeys([*_HEADER_KEYS, *_OTHER_KEYS], Holds.ANYTHING)
    for column in COLUMNS:
        is_number = column.kind in ("ints", "floats", "nanos") or column.key in _NUMERIC_TEXT
        holds[column.key] = Holds.NUMBERS if is_number else Holds.ANYTHING
    numeric = _NUMERIC_TEXT | _OTHER_NUMBERS | _HEADER_NUMBERS
    holds |= dict.fromkeys(numeric, Holds.NUMBERS)
    holds |= dict.fromkeys(_SHAPES, Holds.SHAPES)
    return holds | dict.fromkeys(_VALUES, Holds.VALUES) | dict.fromkeys(_STACKS, Holds.STACK)


class Replacements:
    """What every replaced text became, in the order in which they were met.

    `kernels` and `functions` are the names of GPU kernels and of Python functions, which become
    names of that sort.
    """

    def __init__(
        self,
        kernels: Collection[str] = (),
        functions: Collection[str] = (),
        operators: Collection[str] = (),
        ranges: Collection[str] = (),
        keep: str | None = None,
    ) -> None:
        self._kernels = frozenset(kernels)
        self._sorts = dict.fromkeys(ranges, "range") | dict.fromkeys(functions, "function")
        self._sorts |= dict.fromkeys(operators, "op")
        self._keep = re.compile(keep) if keep else None
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._replaced: dict[str, str] = {}
        self._numbers: dict[bytes, int] = {}
        self._rewritten: dict[Holds | None, dict[bytes, bytes]] = {}  # as they stand; None: keys
        self.removed: set[str] = set()  # texts that must not be found in what is written
        self.kept: set[str] = set()  # texts that stay because they were asked for

    def name(self, text: str) -> str:
        """Return what stands for a text: itself where it is public."""
        if is_public(text) or text in known_keys() or is_device(text):
            return text
        if self._keep is not None and self._keep.fullmatch(text):
            self.kept.add(text)
            return text
        if text not in self._replaced:
            self._replaced[text] = self._make_replacement(text)
            if self._replaced[text] != text:
                self.removed.add(text)
        return self._replaced[text]

    def key(self, text: str) -> str:
        """Return what stands for a key."""
        return text if text in known_keys() else self.name(text)

    def value(self, text: str, holds: Holds) -> str:
        """Return what stands for a text behind such a key."""
        if holds is Holds.NUMBERS and _NUMBER_AS_TEXT.fullmatch(text):
            return text
        if holds in (Holds.VALUES, Holds.SHAPES):
            if not is_public(text):
                self.removed.add(text)
            return ""
        if holds is Holds.STACK and (";" in text or "\n" in text):
            self.removed.add(text)
            frames = re.split(r"(;|\n)", text)
            return "".join(f if f in ";\n" else self._replace_frame(f) for f in frames)
        return self._replace_frame(text) if holds is Holds.STACK and text else self.name(text)

    def outside(self, piece: bytes, holds: Holds) -> bytes:
        """Return what stands for punctuation and numbers behind such a key."""
        if holds is Holds.SHAPES:
            return _LISTS.sub(b"[]", piece)
        return _NUMBER.sub(self._number, piece)

    def _number(self, match: re.Match[bytes]) -> bytes:
        number = match.group()
        return str(self._numbers.setdefault(number, len(self._numbers) + 1)).encode()

    def _replace_frame(self, text: str) -> str:
        self._sorts.setdefault(text, "frame")
        return self.name(text)

    def _make_replacement(self, text: str) -> str:
        if text in self._kernels:
            return self._number_stem(kernel_stem(text))
        if prefix := _PREFIX.match(text):
            rest = text[prefix.end() :]
            return prefix.group() + (self._replace_rest(prefix.group(), rest) if rest else "")
        return self._number_stem(_choose_stem(text, self._sorts.get(text, "text")))

    def _replace_rest(self, prefix: str, rest: str) -> str:
        if prefix.startswith("nn."):  # the number tells instances of a class apart
            match = _MODULE.fullmatch(rest)
            module, number = (match[1], f"_{match[2]}") if match else (rest, "")
            self._sorts.setdefault(module, "Module")
            return self.name(module) + number
        if prefix.startswith("Optimizer.") and (call := _OPTIMIZER_CALL.fullmatch(rest)):
            return self.name(call[1]) + rest[len(call[1]) :]
        return self.name(rest)

    def _number_stem(self, stem: str) -> str:
        self._counts[stem] += 1
        return f"{stem}_{self._counts[stem]}"

    # Of a file's parts

    def events(self, text: bytes) -> bytes:
        """Return events, valid JSON with commas between, with what stands for their texts."""
        pieces = EventPieces(text)
        pieces.replace_strings(pieces.is_key, self._rewrite_once(None, self.key))
        holds = find_value_keys(pieces)
        for kind in Holds:
            chosen = holds == kind
            if chosen.any():
                to = partial(self.value, holds=kind)
                pieces.replace_strings(chosen & ~pieces.is_key, self._rewrite_once(kind, to))
                if kind not in (Holds.NUMBERS, Holds.STACK):
                    pieces.replace_after(
                        chosen & pieces.may_precede_number, self._rewrite_unquoted(kind)
                    )
        pieces.replace_after(pieces.before_unkeyed_number, self._after_object)
        return pieces.joined()

    def _rewrite_once(
        self, holds: Holds | None, to: Callable[[str], str]
    ) -> Callable[[bytes], bytes]:
        """Return how a piece is rewritten: those that were met before as they were then."""
        rewritten = self._rewritten.setdefault(holds, {})
        if len(rewritten) > _MOST_REWRITTEN:
            rewritten.clear()

        def rewrite_piece(piece: bytes) -> bytes:
            new = rewritten.get(piece)
            if new is None:
                new = rewritten[piece] = _quote_text(to(unescape_json(piece)), piece)
            return new

        return rewrite_piece

    def _rewrite_unquoted(self, holds: Holds) -> Callable[[bytes], bytes]:
        return lambda piece: self.outside(piece, holds)

    def _after_object(self, piece: bytes) -> bytes:
        return _NUMBER.sub(self._number, piece) if _AFTER_OBJECT.search(piece) else piece

    def header(self, key: str, value: bytes) -> bytes | None:
        """Return a member of the header; None: it is left out."""
        try:
            content = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if key not in _HEADER_MEMBERS:
            self._remember_texts(key, content)
            return None
        # With blanks, as Kineto writes them: HTA looks for a rank behind one.
        return json.dumps(self._of_header(key, content), ensure_ascii=False).encode()

    def _of_header(self, key: str, content: Any) -> Any:
        if isinstance(content, dict):
            return {self.key(k): self._of_header(k, v) for k, v in content.items()}
        if isinstance(content, list):
            return [self._of_header(key, item) for item in content]
        if isinstance(content, str):
            return self._text_of_header(key, content)
        if isinstance(content, int | float) and not isinstance(content, bool):
            if key in _HEADER_NUMBERS or key in _HEADER_VERSIONS:
                return content
            return self._numbers.setdefault(repr(content).encode(), len(self._numbers) + 1)
        return content

    def _text_of_header(self, key: str, content: str) -> str:
        if content[:1] in ("[", "{") and content:
            try:
                inner = msgspec.json.decode(content)
            except msgspec.DecodeError:
                return self.name(content)
            self.removed.add(content)
            return msgspec.json.encode(self._of_header(key, inner)).decode()
        if key in _HEADER_NUMBERS and _NUMBER_AS_TEXT.fullmatch(content):
            return content
        if key in _HEADER_VERSIONS and _VERSION.fullmatch(content):
            return content
        if key == "name" and not is_device(content) and (gpu := detect_gpu(content)) is not None:
            self.name(content)
            return gpu.device_name
        return self.name(content)

    def _remember_texts(self, key: str, content: Any) -> None:
        """Remember the texts of what is left out, to look for them."""
        if isinstance(content, str):
            self.name(content)
        elif isinstance(content, dict):
            for inner, value in content.items():
                self.key(inner)
                self._remember_texts(inner, value)
        elif isinstance(content, list):
            for item in content:
                self._remember_texts(key, item)


def _choose_stem(name: str, sort: str) -> str:
    """Return what the replacement of a name begins with: the same state and phase are told."""
    meaning = (span_state(name), phase_of_range(name))
    stems = (
        stem
        for stem in (sort, *_TELLING_STEMS)
        if (span_state(f"{stem}_1"), phase_of_range(f"{stem}_1")) == meaning
    )
    return next(stems, sort)


def find_value_keys(pieces: EventPieces) -> NDArray[np.int8]:
    """Return what stands behind the key that each string of some events belongs to."""
    keys = pieces.keys
    holds = np.full(len(pieces.distinct) + 1, Holds.ANYTHING, np.int8)  # the last: no key
    flags = np.zeros(len(holds), bool)
    flags[keys] = True
    for code in np.flatnonzero(flags[:-1]).tolist():
        holds[code] = known_keys().get(unescape_json(pieces.text(code)), Holds.ANYTHING)
    return np.asarray(holds[keys])


def is_replacement(text: str) -> bool:
    """Return whether a text has the form of a replacement, whatever it was before."""
    if ";" in text or "\n" in text:
        return all(is_replacement(frame) or is_public(frame) for frame in re.split(r"[;\n]", text))
    if text.startswith(("[", "{")):
        return all(is_replacement(inner) for inner in re.findall(r'"([^"]*)"', text))
    if prefix := _PREFIX.match(text):
        rest = re.sub(r"\.(?:step|zero_grad)$", "", text[prefix.end() :])
        return not rest or is_replacement(rest)
    stem, mark, number = text.rpartition("_")
    if not mark or not number.isdigit():
        return is_public(text) or text in known_keys()
    return stem in _STEMS or is_stem(stem) or is_replacement(stem)


def number_as_text(text: str) -> bool:
    """Return whether a text is a number or a list of numbers."""
    return _NUMBER_AS_TEXT.fullmatch(text) is not None


@cache
def list_vocabulary() -> str:
    """Return all that replacements and public names are made of: a text that is a part of it tells
    nothing."""
    return "\n".join(
        (*listed_names(), *known_keys(), *COMM_STEMS, *STEMS.values(), *_STEMS, _PREFIX.pattern)
    )


def is_device(name: str) -> bool:
    """Return whether a name is made of the words of known models and no others."""
    return all(word in _device_words() for word in re.split(r"[ -]", name))


@cache
def _device_words() -> frozenset[str]:
    models = (name for gpu in load_catalogue().values() for name in (gpu.device_name, *gpu.also))
    words = {word for name in models for word in re.split(r"[ -]", name)}
    return frozenset(words | set(_OTHER_DEVICE_WORDS.split()))


def unescape_json(piece: bytes) -> str:
    """Return what the inside of a JSON string says."""
    if b"\\" in piece:
        return str(msgspec.json.decode(b'"' + piece + b'"'))
    return piece.decode()


def _quote_text(text: str, piece: bytes) -> bytes:
    """Return the inside of a JSON string; as it stood where it says the same."""
    if text == piece.decode():
        return piece
    return msgspec.json.encode(text)[1:-1]
