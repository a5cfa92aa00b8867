"""What a claim's wording confuses: two quantities that are often taken for each other."""

import re
from dataclasses import dataclass

_SPEEDUP = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:x|×|times)\s*(?:faster|speed-?\s?up|improvement)?\s*"
    r"(?:by|from|with|through|due to|thanks to|using)\s+(.+)",
    re.IGNORECASE,
)
_REDUCTION = re.compile(
    r"(\d+(?:\.\d+)?)\s*%\s*(?:less time|shorter|time saved|reduction)\s*"
    r"(?:by|from|with|through|due to|thanks to|using)\s+(.+)",
    re.IGNORECASE,
)
_LONGEST = 1000  # characters of a claim


@dataclass(frozen=True)
class SpeedupClaim:
    speedup: float  # of the step
    part: str  # that is said to bring it


@dataclass(frozen=True)
class Confusion:
    name: str
    reason: str


def speedup_claim(text: str) -> SpeedupClaim | None:
    """Return the speed-up and its cause, as "1.594x by RMSNorm" or "20 % less time by X" say it."""
    text = text[:_LONGEST]
    if match := _SPEEDUP.search(text):
        return SpeedupClaim(float(match[1]), _name_part(match[2]))
    if (match := _REDUCTION.search(text)) and float(match[1]) < 100:
        return SpeedupClaim(1 / (1 - float(match[1]) / 100), _name_part(match[2]))
    return None


def _name_part(text: str) -> str:
    return re.split(r"\s+(?:on|at|for|in)\s+|[,;(]", text.strip().strip(".'\""))[0].strip()


_COMMUNICATION = r"(communicat|collective|nccl|rccl|all-?_?gather|all-?_?reduce|reduce-?_?scatter)"
_CONFUSIONS = (
    (
        ((rf"{_COMMUNICATION}", r"\d\s*%", r"(kernel|gpu|cuda) time"),),
        "share of kernel time",
        "a share of kernel time is not lost time: kernels of communication run beside those of "
        "compute, and wait for peers while they run. What is lost is exposed communication "
        "(htk time-breakdown), what is waited for is no transfer (htk comm-wait)",
    ),
    (
        ((r"(fsdp|full_?shard|hybrid_?shard|shard_?grad|zero-?3)", r"(bucket|25\s*mi?b)"),),
        "buckets of DDP",
        "25 MB buckets are DDP's (bucket_cap_mb): FSDP gathers and scatters the units it wraps, "
        "layer by layer, as large as their parameters (htk fsdp-units)",
    ),
    (
        ((r"(1\.75|3\.5)\s*gb", r"(forward|backward|communicat)"),
         (r"(shard|all-?_?gather)", r"\d\s*gi?b", r"communicat")),
        "message and wire bytes",
        "what a rank hands to an all-gather is its shard; it sends (N-1) times that over the wire "
        "(htk whatif --ledger)",
    ),
    (
        ((r"(mfu|utili[sz]ation|% of peak)", r"(sparsity|sparse|1,?979|3,?958|624)"),),
        "dense and sparse peak",
        "peaks with structured sparsity are twice the dense ones: utilisation is of the dense peak",
    ),
    (
        ((r"(mfu|model flops)", r"(recomput|checkpointing|hfu|hardware)"),),
        "MFU and HFU",
        "MFU leaves out what is computed again, HFU counts it: with full checkpointing they differ "
        "by a third",
    ),
    (
        ((r"(training|total|wall|job|end-to-end|epoch)[- ]time", r"\d\s*(x|×|%)"),),
        "step and job",
        "the time of a job holds start-up, compilation and saving as well: a step that is n times "
        "faster makes a job less than n times faster (htk job-time)",
    ),
    (
        ((r"gpu (utili[sz]ation|util)\b",),),
        "busy and useful",
        "the driver's GPU utilisation is the share of time with any kernel running, also one that "
        "spins in a collective: it says nothing of operations (htk flops)",
    ),
)  # fmt: skip


def find_confusions(text: str) -> list[Confusion]:
    """Return what the wording may take for something else."""
    lowered = text[:_LONGEST].lower()
    return [
        Confusion(name, reason)
        for alternatives, name, reason in _CONFUSIONS
        if any(all(re.search(word, lowered) for word in words) for words in alternatives)
    ]
