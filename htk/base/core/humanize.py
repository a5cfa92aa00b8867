"""Numbers as people read them: one formatter for every face."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby, pairwise

from htk.base.errors import UsageError

_TIME = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_DURATION = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|min)?\s*")
_BEFORE = 4  # letters kept before the first that differs
_NUMBER = re.compile(r"\d+")
_REPEATED = re.compile(r"[ST]\d*_|L\w\d+E")  # of a mangled name: what stood before; a value
_THEN, _AGAIN = " → ", re.compile(r" ×\d+$")  # between names of a sequence; of one that repeats
_AND = "; "  # between names of a list
_NAMESPACES = re.compile(r"\b(?:[A-Za-z_]\w*::)+")
_SCALE = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 10**9, "min": 60 * 10**9}


_WORD = re.compile(r"[a-z]+(?=[\s,;.'’]|-[a-z]|$)")
_LONGEST_NS = 100 * 365 * 86_400 * 10**9  # added to times since 1970, it is still one
_MOST_DIGITS = 18  # of what 64 bits hold
_FACTOR_FROM = 900.0  # %: ten times
_ROUND_FROM = 100.0  # times
_MESSAGE = 200  # letters of what another program said, that are told


def format_duration(ns: int | float) -> str:
    """12345 -> 12.3 µs."""
    return _format_scaled(ns, _TIME)


def format_signed_duration(ns: int | float) -> str:
    """-12345 -> −12.3 µs: by how much something changed."""
    sign = "+" if ns > 0 else "−"
    return sign + format_duration(abs(round(ns)))


def format_bytes(count: int | float) -> str:
    """1536 -> 1.50 KiB."""
    return _format_scaled(count, _BYTES)


def format_microseconds(ns: int) -> str:
    """1234567 -> 1234.567, as trace files write times: exact, which no float is."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def format_number(value: int | float) -> str:
    """1234567 -> 1,234,567; 0.123456 -> 0.123; 0.0000123 -> < 0.001."""
    if isinstance(value, int):
        return f"{value:,}"
    if 0 < abs(value) < 0.0005:
        return "< 0.001" if value > 0 else "> -0.001"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def command_name(name: str) -> str:
    """Return the command that answers an analysis: kernel-top of kernel_top."""
    return name.replace("_", "-")


def pluralize_count(count: int, what: str) -> str:
    """1 file, 1,200 files."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def make_sentence(words: str) -> str:
    """Return words as a sentence; a name that they begin with, such as aten::mm, stays as it is."""
    first = words[:1].upper() if _WORD.match(words) else words[:1]
    return f"{first}{words[1:].rstrip('.')}."


def format_change(percent: float) -> str:
    """-12.34 -> "-12.3 %", 3157.5 -> "32.6x": how much a change is, of what was before."""
    if percent < _FACTOR_FROM:
        return f"{percent:+.1f} %"
    factor = 1 + percent / 100
    return f"{factor:,.0f}x" if factor >= _ROUND_FROM else f"{factor:.1f}x"


def format_value(value: object, unit: str) -> str:
    """Return a cell of a table."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if unit == "ns":
        return format_duration(value)
    if unit in ("us", "ms"):
        return format_duration(value * _SCALE[unit])
    if unit == "bytes":
        return format_bytes(value)
    if unit == "%":
        return f"{value:.1f} %"
    return format_number(value) + (f" {unit}" if unit else "")


def parse_duration(text: str) -> int:
    """'1.5ms' -> 1500000 ns; only 0 may stand without a unit."""
    match = _DURATION.fullmatch(text)
    if match is None or (match[2] is None and float(match[1])):
        what = "is not a time" if match is None else "has no unit"
        raise UsageError(f"{shorten_text(text)!r} {what}; write a time as 250us, 1.5ms or 2s")
    ns = float(match[1]) * _SCALE[match[2] or "ns"]
    if abs(ns) > _LONGEST_NS:
        raise UsageError(f"{shorten_text(text)!r} is longer than a century")
    return round(ns)


def parse_int_ranges(text: str) -> list[int]:
    """'0,2..4' -> [0, 2, 3, 4]."""
    numbers: list[int] = []
    for piece in text.split(","):
        low, dots, high = piece.strip().partition("..")
        if not low.isdecimal() or (dots and not high.isdecimal()):
            raise UsageError(f"{shorten_text(text)!r} is not a list of numbers; write it as 0,2..5")
        if max(len(low), len(high)) > _MOST_DIGITS:
            raise UsageError(f"{shorten_text(text)!r}: no number of a rank or step is so large")
        last = int(high) if dots else int(low)
        if last < int(low):
            raise UsageError(f"{piece.strip()!r} runs backwards; write it as {high}..{low}")
        if last - int(low) > 1_000_000:
            raise UsageError(f"{text!r} names more than a million numbers")
        numbers += range(int(low), last + 1)
    return numbers


def parse_pattern(text: str, option: str) -> re.Pattern[str]:
    """Return the regular expression that an option was given."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        why = f"{option} {shorten_text(text)!r} is not a regular expression: {error}"
        raise UsageError(why) from None


def format_int_ranges(values: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> '0..2, 5'."""
    pieces: list[tuple[int, int]] = []
    for value in sorted(values):
        if pieces and value == pieces[-1][1] + 1:
            pieces[-1] = pieces[-1][0], value
        else:
            pieces.append((value, value))
    shown = [f"{a}..{b}" if b > a else str(a) for a, b in pieces[:8]]
    return ", ".join(shown) + (", …" if len(pieces) > 8 else "")


# Control characters of C0 and C1, line and paragraph separators, bidirectional marks, surrogates.
STEERING = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def make_visible(text: str) -> str:
    """Return the text on one line, with every character that steers a terminal spelled out: names
    in a file may hold escape sequences and marks that reverse what follows."""
    if text.isprintable():  # also without bidirectional marks, which are format characters
        return text
    return STEERING.sub(_spell_character, text)


def _spell_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in "\t\n\r":
        return " "
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def cut_message(text: str) -> str:
    """Return what another program said, or its beginning where it is long."""
    return text if len(text) <= _MESSAGE else f"{text[: _MESSAGE - 1]}…"


def shorten_text(text: str, width: int = 60) -> str:
    """A long name cut: of a C++ function first its parameters and namespaces, then the end of its
    template arguments; of another name the middle; of a sequence each name, then its end."""
    if len(text) <= width:
        return text
    for between in (_THEN, _AND):
        if between in text:
            return _join_first(text.split(between), width, between)
    if again := _AGAIN.search(text):
        return shorten_text(text[: again.start()], width - len(again[0])) + again[0]
    if ".py(" not in text and text[0] != "<":  # Python's calls have no templates
        text = _shorten_signature(text)
    if len(text) <= width:
        return text
    name, bracket, _ = text.partition("<")
    if bracket and len(name) <= width - 3:
        return text[: width - 2] + "…>"
    if bracket:
        text = name
    head = (width - 1) * 2 // 3
    return text[:head] + "…" + text[-(width - 1 - head) :]


def shorten_apart(names: Iterable[str], width: int = 60) -> dict[str, str]:
    """Return each name cut to a width so that no two of them look the same."""
    cut = {name: shorten_text(name, width) for name in names}
    count = Counter(cut.values())
    bare = {name: _shorten_signature(name) for name, short in cut.items() if count[short] > 1}
    if len(set(bare.values())) < len(bare):  # they differ in what that leaves out
        bare = {name: name for name in bare}
    apart = _by_their_parts([*bare.values()], width)
    apart |= _from_where_they_differ([own for own in bare.values() if own not in apart], width)
    cut |= {name: apart[own] for name, own in bare.items()}
    seen: Counter[str] = Counter()
    for name, short in cut.items():  # those that differ in two places far apart are numbered
        seen[short] += 1
        if seen[short] > 1:
            mark = f" #{seen[short]}"
            cut[name] = short[: width - len(mark)] + mark
    return cut


def _by_their_parts(names: list[str], width: int) -> dict[str, str]:
    """Return names of as many parts by their first part and those in which they differ, with those
    of the others that there is room for."""
    alike: dict[int, list[list[str]]] = {}
    for name in names:
        parts = name.split("_")
        alike.setdefault(len(parts), []).append(parts)
    cut = {}
    for members in alike.values():
        differ = {k for k, words in enumerate(zip(*members, strict=True)) if len({*words}) > 1}
        for parts in members if differ else []:
            short = _with_room(parts, {0} | differ, width)
            if len(short) <= width:
                cut["_".join(parts)] = short
    return cut


def _with_room(parts: list[str], kept: set[int], width: int) -> str:
    """Return the parts of a name that are kept, and the first others that fit."""
    short = _joined_parts(parts, kept)
    for k in range(1, len(parts)):
        longer = _joined_parts(parts, {*range(k + 1)} | kept)
        if len(longer) > width:
            break
        short = longer
    return short


def _joined_parts(parts: list[str], kept: set[int]) -> str:
    """Return the parts that are kept, with a mark where others were."""
    words = (part if k in kept else "…" for k, part in enumerate(parts))
    return "_".join(word for word, _ in groupby(words))


def _from_where_they_differ(names: list[str], width: int, shared: int = -1) -> dict[str, str]:
    """Return how names begin, and how they go on from where they differ; those that still look the
    same go on from where these differ. `shared`: letters that are known to be the same."""
    if not names:
        return {}
    low = min(names)
    high = max(names)
    letters = enumerate(zip(low, high, strict=False))
    differ = next((index for index, (a, b) in letters if a != b), len(low))
    head = width // 3
    begin = max(head, differ - _BEFORE)
    room = width - head - 1
    alike: dict[str, list[str]] = {}
    for name in names:
        rest = name[begin:]
        rest = rest if len(rest) <= room else rest[: room - 1] + "…"
        alike.setdefault(f"{name[:head]}…{rest}", []).append(name)
    cut: dict[str, str] = {}
    for short, same in alike.items():
        apart = len(same) > 1 and differ > shared
        cut |= _from_where_they_differ(same, width, differ) if apart else dict.fromkeys(same, short)
    return cut


def join_in_order(names: Sequence[str], most: int = 40) -> str:
    """Return names that follow each other; one that repeats right away is counted."""
    runs = [(name, len([*same])) for name, same in groupby(names[:most])]
    parts = [shorten_text(name, 120) + (f" ×{times}" if times > 1 else "") for name, times in runs]
    return " → ".join(parts) + (" → …" if len(names) > most else "")


def _join_first(names: list[str], width: int, between: str) -> str:
    """Return the first names, and how many more there are; two have room."""
    room = (width - len(f"{between}{between}… 9")) // 2
    text = shorten_text(names[0], room)
    for position, name in enumerate(names[1:], 1):
        longer = f"{text}{between}{shorten_text(name, room)}"
        left = len(names) - position - 1
        if len(longer) + (len(f"{between}… {left}") if left else 0) > width:
            return f"{text}{between}… {left + 1}"
        text = longer
    return text


def _shorten_signature(name: str) -> str:
    """void a::f<int, b::g<4>>(int) -> f<int, g<4>>; _ZN1a1fINS_1gELi4EEEvi -> a::f<g>."""
    if name.startswith("_ZN"):
        return _words_of_mangled(name)
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    if name.startswith("std::enable_if<"):  # the type of what it returns
        name = name.partition(">::type ")[2] or name
    depth = 0
    for index, character in enumerate(name):  # one name, for people to read
        depth += (character == "<") - (character == ">")
        if character == "(" and depth <= 0 and index:
            name = name[:index]
            break
    own, bracket, arguments = name.partition("<")
    return own.replace("at::native::", "") + bracket + _NAMESPACES.sub("", arguments)


def _words_of_mangled(name: str) -> str:
    """Return the words of a mangled name: its own, and those among its arguments."""
    own: list[str] = []
    others: list[str] = []
    words = own
    index = len("_ZN")
    while index < len(name):
        if size := _NUMBER.match(name, index):
            index = size.end() + int(size[0])
            word = name[size.end() : index]
            if word not in words:
                words.append(word)
        elif repeated := _REPEATED.match(name, index):
            index = repeated.end()
        else:
            if name[index] == "I":
                words = others
            index += 1
    return "::".join(own) + (f"<{', '.join(others)}>" if others else "")


def _format_scaled(value: int | float, units: tuple[tuple[int, str], ...]) -> str:
    """Return three digits and a unit; what rounds up to one of the next unit is told in that."""
    last = units[-1][1]
    if value == 0:
        return f"0 {last}"
    for (factor, unit), (smaller, _) in pairwise(units):
        if abs(value) >= factor - smaller / 2:
            scaled = value / factor
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:,.{digits}f} {unit}"
    if abs(value) < 1:
        return f"{'< 1' if value > 0 else '> -1'} {last}"
    return f"{value:.3g} {last}" if isinstance(value, float) else f"{value} {last}"


def terminal_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


@cache
def _columns_of(character: str) -> int:
    is_wide = unicodedata.east_asian_width(character) in ("W", "F")
    return 1 + is_wide - (unicodedata.combining(character) != 0)
