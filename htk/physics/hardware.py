"""The hardware catalogue: accelerators by name, from hardware.toml beside this module and a file of
the user's own."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from htk.base.core.user_toml import read_toml
from htk.base.errors import UsageError
from htk.base.mappings import Fields

OWN_FILE = "HTK_GPUS"  # environment variable that names the user's file
FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")


@dataclass(frozen=True)
class Gpu:
    """An accelerator that a rank runs on. Rates in 1e12 operations and 1e9 bytes a second; dense
    peaks of matrix units. `None`: it does not have that, or nobody published it."""

    name: str
    device_name: str  # as the driver gives it
    vendor: str  # nvidia, amd, intel; empty: the user's file does not say
    architecture: str
    capability: str | None  # CUDA's compute capability, or the first digits of AMD's gfx
    bf16_tflops: float | None
    fp16_tflops: float | None
    tf32_tflops: float | None
    fp8_tflops: float | None
    fp4_tflops: float | None
    int8_tops: float | None
    fp32_tflops: float | None  # of vector units
    fp32_matrix_tflops: float | None
    fp64_tflops: float | None  # of vector units
    fp64_matrix_tflops: float | None
    achievable_bf16_tflops: float | None  # the fastest matrix product that was measured
    achievable_fp8_tflops: float | None
    memory_gb: float
    memory_gbps: float
    scale_up_gbps: float  # all links to its neighbours, one way
    scale_out_gbps: float  # its usual share of the node's adapters, one way
    units: int  # streaming multiprocessors, compute units or tensor cores
    tdp_w: int | None
    also: tuple[str, ...]  # other names that drivers give it

    @property
    def half_tflops(self) -> float:
        """The dense peak in 16 bits: of bf16, or of fp16 where there is no bf16."""
        return self.bf16_tflops or self.fp16_tflops or 0.0  # the catalogue requires one

    @property
    def half_format(self) -> str:
        """The 16-bit format that training uses: bf16, or fp16 where there is no bf16."""
        return "fp16" if self.bf16_tflops is None else "bf16"

    @property
    def achievable_half_tflops(self) -> float:
        """The fastest product in 16 bits that was measured, or else what is usually reached."""
        return self.achievable_bf16_tflops or OF_PEAK * self.half_tflops

    def achievable_tflops(self, number_format: str) -> float | None:
        """Return the fastest product measured in fp4, fp8, bf16 or fp32 (as TF32 where it has
        that), or else what is usually reached; None where it has no such products."""
        if number_format == "bf16":
            return self.achievable_half_tflops
        if number_format == "fp8" and self.achievable_fp8_tflops:
            return self.achievable_fp8_tflops
        if number_format == "fp4":  # no measurement is known: as far from its peak as fp8
            if self.fp4_tflops is None:
                return None
            eight = self.achievable_tflops("fp8")
            share = eight / self.fp8_tflops if eight and self.fp8_tflops else OF_PEAK
            return share * self.fp4_tflops
        if number_format == "fp8":  # else as far from its peak as 16 bits
            share = self.achievable_half_tflops / self.half_tflops
            return None if self.fp8_tflops is None else share * self.fp8_tflops
        peak = self.tf32_tflops or self.fp32_tflops
        return None if peak is None else OF_PEAK * peak

    @property
    def achievable_memory_gbps(self) -> float:
        """Return the bandwidth that a large copy reaches, in GB/s."""
        return _OF_MEMORY * self.memory_gbps

    @property
    def memory_bytes(self) -> float:
        """The bytes a process can use: makers count in 2^30, drivers keep about a hundredth."""
        return _FREE * self.memory_gb * 2**30

    def limited_to(self, gib: float) -> "Gpu":
        """Return this GPU with so much memory for a process, in GiB."""
        return replace(self, memory_gb=gib / _FREE)

    def has(self, number_format: str) -> bool:
        """Return whether it computes in that format: fp32, tf32, fp16, bf16, fp8, fp4, int8."""
        if number_format not in FORMATS:
            raise ValueError(f"{number_format}: one of {', '.join(FORMATS)} was expected")
        column = "int8_tops" if number_format == "int8" else f"{number_format}_tflops"
        return getattr(self, column) is not None


OF_PEAK = 0.8  # achievable share of the peak, where none was measured: median of those measured
_OF_MEMORY = 0.8  # of the memory's rate
_FREE = 0.99  # of its size, to processes: 79.2 of 80 on A100 and H100, 15.8 of 16 on V100
_TEXTS = ("device_name", "vendor", "architecture", "capability")
_NEEDED = ("device_name", "memory_gb", "memory_gbps", "scale_up_gbps", "scale_out_gbps", "units")


class Catalogue(Mapping[str, Gpu]):
    """Accelerators by their short names: those of the user's file, then htk's.

    Most runs need one of them, so an entry of htk's is read when it is asked for: all of them take
    as long as a question.
    """

    def __init__(self, own: Mapping[str, Gpu], text: str) -> None:
        """`text`: htk's own list, of a form that a test holds it to."""
        parts = re.split(r"^\[(.+)\]\n", text, flags=re.MULTILINE)[1:]
        self._texts = dict.fromkeys(own, "") | dict(zip(parts[::2], parts[1::2], strict=True))
        self._gpus = dict(own)

    def __getitem__(self, name: str) -> Gpu:
        if name not in self._gpus:
            self._gpus[name] = _build_gpu(name, tomllib.loads(self._texts[name]))
        return self._gpus[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    @cached_property
    def letters(self) -> Mapping[str, str]:
        """The letters and digits of each short name."""
        return {short: _letters_and_digits(short) for short in self}

    @cached_property
    def words_of_drivers(self) -> Sequence[tuple[str, frozenset[str]]]:
        """Each short name with the words of what drivers call that accelerator, a row a name."""
        return [(short, words_of(name)) for short, names in self.driver_names() for name in names]

    def driver_names(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield each short name with what drivers call that accelerator."""
        for name, text in self._texts.items():
            read_entry = self._gpus.get(name)
            if read_entry is None:
                lines = re.findall(r"^(?:device_name|also) = (.+)$", text, re.MULTILINE)
                yield name, [word for line in lines for word in re.findall(r'"(.+?)"', line)]
            else:
                yield name, (read_entry.device_name, *read_entry.also)


def words_of(name: str) -> frozenset[str]:
    """Return the words of an accelerator's name: their order and its punctuation tell nothing."""
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))


def load_catalogue(own_file: str | None = None) -> Catalogue:
    """Return every known accelerator by its short name; those of the user's own file, given or
    named by the environment, come first."""
    return _read_catalogue(own_file or os.environ.get(OWN_FILE) or None)


def gpu(name: str) -> Gpu:
    """Return the entry of that short name; `RTX4090` and `rtx_4090` are `rtx-4090`."""
    near = gpus_named(name)
    if len(near) > 1:
        raise UsageError(f"which {name}: {', '.join(near)}?")
    return next(iter(near.values()))


def gpus_named(name: str) -> Mapping[str, Gpu]:
    """Return the entries that a name may mean: the one of that name, else all that begin so."""
    entries = load_catalogue()
    if name.lower() in entries:
        return {name.lower(): entries[name.lower()]}
    alike = entries.letters
    bare = _letters_and_digits(name)
    for near in (
        [short for short, letters in alike.items() if letters == bare],
        [short for short, letters in alike.items() if bare and letters.startswith(bare)],
    ):
        if near:
            return {short: entries[short] for short in near}
    raise UsageError(f"no GPU {name!r} in the catalogue; there are {', '.join(entries)}")


def _letters_and_digits(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


@cache
def _read_catalogue(own: str | None) -> Catalogue:
    text = Path(__file__).with_name("hardware.toml").read_text(encoding="utf-8")
    return Catalogue({} if own is None else _own_file(Path(own)), text)


def _own_file(path: Path) -> dict[str, Gpu]:
    entries = read_toml(path, "a list of GPUs")
    gpus = {}
    for name, entry in entries.items():
        try:
            gpus[name.lower()] = _build_gpu(name.lower(), entry)
        except ValueError as error:
            raise UsageError(f"{path}: [{name}]: {error}") from error
    return gpus


def _build_gpu(name: str, entry: Any) -> Gpu:
    if not isinstance(entry, dict):
        raise ValueError("a table was expected, such as [my-gpu]")
    figures: Fields = dict.fromkeys(f.name for f in fields(Gpu))
    unknown = sorted(set(entry) - set(figures) | set(entry) & {"name"})
    if unknown:
        raise ValueError(f"unknown {', '.join(unknown)}; known are {', '.join(figures)}")
    for key, value in entry.items():
        figures[key] = _check_figure(key, value.get("value") if isinstance(value, dict) else value)
    missing = [key for key in _NEEDED if figures[key] is None]
    if figures["bf16_tflops"] is None and figures["fp16_tflops"] is None:
        missing.append("bf16_tflops or fp16_tflops")
    if missing:
        raise ValueError(f"{', '.join(missing)} missing")
    figures |= {key: figures[key] or "" for key in ("vendor", "architecture")}
    return Gpu(**{**figures, "also": figures["also"] or (), "name": name})


def _check_figure(key: str, value: Any) -> Any:
    if key == "also":
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise ValueError("also: a list of names was expected")
        return tuple(value)
    if key in _TEXTS:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{key}: a text was expected")
        if key == "capability" and not re.fullmatch(r"\d{1,3}\.\d{1,3}", value, re.ASCII):
            raise ValueError(f'{key}: two numbers such as "9.0" were expected, not {value!r}')
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise ValueError(f"{key}: a positive number was expected, not {value!r}")
    return int(value) if key in ("units", "tdp_w") else value
