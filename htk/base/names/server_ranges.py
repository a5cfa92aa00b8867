"""Ranges that inference servers put round their iterations, and what the names of these tell.

    vLLM             execute_8192_context_2(sq9sk12sqsq45sqsk57)_generation_3(sq3sk70sqsq3sqsk70)
                     execute_context_2(14721)_generation_3(3), execute_new_2_cached_3
    SGLang           step[EXTEND bs=2 toks=700 c_sqsq=… c_sqsk=… c_sk=…], step[DECODE bs=32 g_sk=…]
                     step[MIXED bs=66 c=2 g=64 c_sq=9 … g_sq=64 …], step[mixed bs=66 ext=3 dec=64]
    ATOM             prefill[bs=2 tok=14721 ctx=[7803, 6918] …], decode[bs=117/128 tok=117 d=117 …]
    TensorRT-LLM     [Executor] _forward_step 7: 2 ctx reqs, 900 ctx tokens, 30 gen reqs
    xDiT             execute_diffusion_1_256x256

Sums over the requests of an iteration: of queries (sq), keys (sk), squares of queries (sqsq), and
products of queries and keys (sqsk), apart for requests that are read and those that are answered.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

PREFILL, DECODE, MIXED, IDLE, DRAFT, DIFFUSION = (
    "prefill", "decode", "mixed", "idle", "draft", "diffusion"
)  # fmt: skip


@dataclass(frozen=True)
class RequestSums:
    """Sums over the requests of an iteration that are read, or over those that are answered; None:
    the name does not tell."""

    requests: int | None = None
    tokens: int | None = None
    keys: int | None = None
    squares: int | None = None
    products: int | None = None

    @property
    def pairs(self) -> int | None:
        """Return how many pairs of tokens attention looks at, under a causal mask hung at the
        bottom right: q·k − (q² − q)/2 of each request; None: not told."""
        if self.tokens is None:
            return None
        if self.products is None or self.squares is None:
            return self.keys if self.tokens == self.requests else None
        return self.products - (self.squares - self.tokens) // 2


NOBODY = RequestSums(0, 0, 0, 0, 0)


@dataclass(frozen=True)
class ServerRange:
    """What the name of a range tells of an iteration."""

    phase: str | None
    prompts: RequestSums
    answers: RequestSums
    computed: int | None = None  # tokens, padding included

    @property
    def tokens(self) -> int | None:
        """The tokens of all requests; None: not told."""
        both = (self.prompts.tokens, self.answers.tokens)
        return None if None in both else sum(n for n in both if n is not None)

    @property
    def padding(self) -> int | None:
        """The tokens that are computed for nobody; None: not told."""
        if self.computed is None or self.tokens is None:
            return None
        return max(self.computed - self.tokens, 0)

    @property
    def traits(self) -> tuple[str, ...]:
        """What is out of the ordinary, in a word each."""
        prompts = self.prompts
        answers = self.answers
        return tuple(
            word
            for word, is_so in (
                ("chunked", _is_above(prompts.keys, prompts.tokens)),
                ("speculative", _is_above(answers.tokens, answers.requests)),
                ("padded", bool(self.padding)),
            )
            if is_so
        )


def _is_above(count: int | None, other: int | None) -> bool:
    return count is not None and other is not None and count > other


_VLLM_SIDE = (
    r"\((?:sq(?P<{0}_tokens>\d+)(?:sk(?P<{0}_keys>\d+))?"
    r"(?:sqsq(?P<{0}_squares>\d+)sqsk(?P<{0}_products>\d+))?"
    r"|(?P<{0}_plain>\d+)(?:_(?P<{0}_plain_products>\d+))?)?[^)]*\)"
)
_VLLM = re.compile(
    r"execute_(?:(?P<computed>\d+)_|\S*_)?context_(?P<prompts_requests>\d+)"
    + _VLLM_SIDE.format("prompts")
    + r"_generation_(?P<answers_requests>\d+)"
    + _VLLM_SIDE.format("answers")
)
_VLLM_COUNTS = re.compile(r"execute_new_(?P<new>\d+)_cached_(?P<cached>\d+)")
_SGLANG = re.compile(r"step\[(?P<mode>[A-Za-z]\w*)(?P<facts>(?: [^\]]*)?)\]")
_ATOM = re.compile(r"(?:eager_)?(?P<mode>prefill|decode)\[(?P<facts>bs=.*)\]")
_TENSORRT = re.compile(
    r"(?:\[Executor\] )?(?:_forward_step(?: \d+)?|executeStep): (?P<prompts>\d+) ctx reqs, "
    r"(?:(?P<tokens>\d+) ctx tokens, )?(?P<answers>\d+) gen reqs"
)
_XDIT = re.compile(r"execute_diffusion_(?P<requests>\d+)_\d+x\d+")
_WORD = re.compile(r"(?P<mode>prefill|decode|extend|generate)\b", re.IGNORECASE)
_FACT = re.compile(r"(\w+)=(\d+)(?:/(\d+))?(?=[\s\]]|$)")

_CAPTURE = re.compile(r"capture_\d+_[A-Za-z]\w*")

_SGLANG_PHASES = {
    "extend": PREFILL,
    "prefill": PREFILL,
    "split_prefill": PREFILL,
    "decode": DECODE,
    "generate": DECODE,
    "target_verify": DECODE,
    "dllm_extend": DECODE,
    "mixed": MIXED,
    "idle": IDLE,
    "prebuilt": IDLE,
    "draft_extend": DRAFT,
    "draft_extend_v2": DRAFT,
}
_ONE_TOKEN_EACH = ("decode", "generate")


def phase_of(prompts: int | None, answers: int | None) -> str | None:
    """Return the phase of an iteration that reads and answers so many requests."""
    if prompts is None and answers is None:
        return None
    if prompts and answers:
        return MIXED
    return PREFILL if prompts else DECODE if answers else IDLE


def _read_vllm(match: re.Match[str]) -> ServerRange:
    counts = {name: int(value) for name, value in match.groupdict().items() if value is not None}
    prompts = _vllm_side(counts, "prompts")
    answers = _vllm_side(counts, "answers")
    phase = phase_of(prompts.requests, answers.requests)
    return ServerRange(phase, prompts, answers, counts.get("computed"))


def _vllm_side(counts: Mapping[str, int], name: str) -> RequestSums:
    tokens = counts.get(f"{name}_tokens", counts.get(f"{name}_plain"))
    products = counts.get(f"{name}_products", counts.get(f"{name}_plain_products"))
    keys = counts.get(f"{name}_keys")
    squares = counts.get(f"{name}_squares")
    return RequestSums(counts[f"{name}_requests"], tokens, keys, squares, products)


def _read_counts(match: re.Match[str]) -> ServerRange:
    new = int(match["new"])
    cached = int(match["cached"])
    return ServerRange(phase_of(new, cached), RequestSums(new), RequestSums(cached))


def _facts_of(text: str) -> tuple[dict[str, int], int | None]:
    """Return the numbers of `bs=117/128 tok=117`, and the 128 that is computed."""
    each = _FACT.findall(text)
    padded = next((int(most) for _, _, most in each if most), None)
    return {name: int(value) for name, value, _ in each}, padded


def _read_sglang(match: re.Match[str]) -> ServerRange:
    mode = match["mode"].lower()
    phase = _SGLANG_PHASES.get(mode)
    facts, computed = _facts_of(match["facts"])
    batch = facts.get("bs")
    if phase == MIXED:
        answered = facts.get("g", facts.get("dec"))
        read = facts.get("c")
        if read is None and answered is not None and batch is not None:
            read = batch - answered
        prompts = _sglang_side(facts, "c", read, facts.get("ext"))
        answers = _sglang_side(facts, "g", answered, facts.get("dec"))
        return ServerRange(phase, prompts, answers, computed)
    if phase == PREFILL:
        return ServerRange(phase, _sglang_side(facts, "c", batch, facts.get("toks")), NOBODY)
    if phase == IDLE:
        return ServerRange(phase, NOBODY, NOBODY)
    tokens = facts.get("toks", batch if mode in _ONE_TOKEN_EACH else None)
    return ServerRange(phase, NOBODY, _sglang_side(facts, "g", batch, tokens), computed)


def _sglang_side(
    facts: Mapping[str, int], letter: str, requests: int | None, tokens: int | None
) -> RequestSums:
    sums = {name: facts.get(f"{letter}_{name}") for name in ("sk", "sqsq", "sqsk")}
    return RequestSums(requests, facts.get(f"{letter}_sq", tokens), *sums.values())


def _read_atom(match: re.Match[str]) -> ServerRange:
    facts, most = _facts_of(match["facts"])
    batch = facts.get("bs")
    tokens = facts.get("tok")
    sums = (facts.get("sk"), facts.get("sqsq"), facts.get("sqsk"))
    if match["mode"] == "prefill":
        return ServerRange(PREFILL, RequestSums(batch, tokens, *sums), NOBODY, most)
    read = facts.get("p", 0)
    answered = facts.get("d", batch)
    if read:  # its sums are of both sides together
        return ServerRange(MIXED, RequestSums(read), RequestSums(answered))
    each = tokens // batch if tokens and batch else 1
    computed = None if most is None else most * each
    return ServerRange(DECODE, NOBODY, RequestSums(answered, tokens, *sums), computed)


def _read_tensorrt(match: re.Match[str]) -> ServerRange:
    read = int(match["prompts"])
    answered = int(match["answers"])
    tokens = match["tokens"]
    prompts = RequestSums(read, int(tokens)) if tokens else RequestSums(read, None if read else 0)
    return ServerRange(phase_of(read, answered), prompts, RequestSums(answered))


def _read_xdit(match: re.Match[str]) -> ServerRange:
    return ServerRange(DIFFUSION, NOBODY, RequestSums(int(match["requests"])))


def _read_word(match: re.Match[str]) -> ServerRange:
    return ServerRange(_SGLANG_PHASES[match["mode"].lower()], RequestSums(), RequestSums())


# In the order of how much they tell; of a recording that holds several, the first is read.
FORMS: dict[str, tuple[re.Pattern[str], Callable[[re.Match[str]], ServerRange]]] = {
    "execute_…": (_VLLM, _read_vllm),
    "step[…]": (_SGLANG, _read_sglang),
    "prefill[…], decode[…]": (_ATOM, _read_atom),
    "_forward_step": (_TENSORRT, _read_tensorrt),
    "execute_new_…": (_VLLM_COUNTS, _read_counts),
    "execute_diffusion_…": (_XDIT, _read_xdit),
    "plain": (_WORD, _read_word),
}
_OF_ANYBODY = ("plain",)  # such words name ranges of other programs too


@lru_cache(maxsize=65_536)
def form_of(name: str) -> str | None:
    """Return the form of a range's name, if it is one round an iteration."""
    return next((form for form, (pattern, _) in FORMS.items() if pattern.match(name)), None)


def is_server_range(name: str) -> bool:
    """Return whether a range is surely one that a server puts round its iterations."""
    return form_of(name) not in (None, *_OF_ANYBODY)


def is_capture_range(name: str) -> bool:
    """Return whether a range is one in which an engine captures its graphs."""
    return bool(_CAPTURE.match(name))


def is_server_mark(name: str) -> bool:
    """Return whether a range is one of a server: round an iteration or a capture."""
    return is_server_range(name) or is_capture_range(name)


def describe_lone_capture(names: Iterable[str | None]) -> str:
    """Return what to say of ranges of which one captures a graph and none serves anybody; "": they
    are not such."""
    listed = [name for name in names if name]
    capture = next((name for name in listed if is_capture_range(name)), None)
    if capture is None or any(is_server_range(name) for name in listed):
        return ""
    return (
        f"A server captures its graphs ({capture}) and serves nobody: open the recording in which "
        "they run, with this one beside it for the shapes"
    )


@lru_cache(maxsize=65_536)
def read_server_range(name: str) -> ServerRange | None:
    """Return what a range's name tells, if it is one round an iteration."""
    form = form_of(name)
    if form is None:
        return None
    pattern, read = FORMS[form]
    match = pattern.match(name)
    return read(match) if match else None
