"""The name of a kernel's function itself, out of what profilers record, and the words of a name."""

import re
from functools import lru_cache

_RETURN_TYPE = re.compile(r"^std::enable_if<.*?>::type ")
_BRACKETS = re.compile(r"([<>(])")
_LENGTH = re.compile(r"L?(\d+)")
# Types of few bits stand first: their letters and digits would be torn apart.
_WORD = re.compile(
    r"(?i:bfloat16|bf16|tf32|fp\d+|(?:mx|nv)fp\d|mxe[2345]m[0-7]|e[2345]m[0-7]|int[48])"
    r"|[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+"
)


@lru_cache(maxsize=100_000)
def bare_name(name: str) -> str:
    """Return the function's own name: no template arguments, parameters or return type."""
    if name.startswith("_Z"):
        return _of_mangled(name) or name
    name = _RETURN_TYPE.sub("", name.replace("(anonymous namespace)::", ""))
    pieces: list[str] = []
    depth = 0
    for piece in _BRACKETS.split(name):
        if piece == "<":
            depth += 1
        elif piece == ">":
            depth -= depth > 0
        elif piece == "(" and not depth and pieces:
            break
        elif not depth:
            pieces.append(piece)
    bare = "".join(pieces).strip()
    return bare.rpartition(" ")[2] if not name.startswith("triton") else bare


def _of_mangled(name: str) -> str:
    """Return the qualified name of a mangled one: `_ZN7ck_tile6kentryILi…` is ck_tile::kentry."""
    nested = name.startswith("_ZN")
    position = 3 if nested else 2
    parts = []
    while length := _LENGTH.match(name, position):
        position = length.end() + int(length[1][:6])
        parts.append(name[length.end() : position])
    if nested and name[position : position + 1] not in ("", "E", "I"):
        return ""  # no mangled name, though it begins like one
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N"))


def spell_words(name: str) -> str:
    """Return the words of a name between underscores: `BatchedGemm` is `_batched_gemm_`."""
    return f"_{'_'.join(_WORD.findall(name))}_".lower()
