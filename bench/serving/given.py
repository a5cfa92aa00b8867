"""Servers that others measured, a file of many, beside what `htk plan-serving` says of each.

usage: python -m bench.serving.given FILE [--write]

FILE is the list of measured servers of aiconfigurator-core (Apache-2.0), as CSV in gzip.
--write renews docs/measured_servers.md.
"""

import argparse
import csv
import gzip
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from bench.serving.rows import time_batch
from htk.physics.decoder import Decoder
from htk.physics.hardware import gpu
from htk.physics.presets import decoder, find_preset
from htk.planning.serving.certainty import estimate_serving_certainty
from htk.planning.serving.server import Server
from htk.planning.serving.steady import Load, SteadyServer

_PAGE = Path(__file__).parents[2] / "docs/measured_servers.md"
_OTHERS = {
    "MiniMax-M2.5": Decoder(
        "minimax-m2.5", 62, 3072, 48, 8, 1536, 200064, experts=256, active_experts=8, head_size=128
    ),
    "Kimi-K2.5": decoder("kimi-k2"),
}
_GPUS = {"h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "gb200": "gb200"}
_WEIGHTS = {"fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "int4_wo": "int4", "": "bf16"}
_DENSE = ("Llama", "Qwen3-32B")
_CONCURRENCY = re.compile(r"silicon_concurrency=(\d+)")
_TOGETHER = 0.1  # of a client's requests: it sends ten rounds, of which the first come at once
_FRONT_NS = 40e6  # of a request's way to the model and of its first token's back

_HEAD = """# Measured servers

`htk plan-serving` held against servers that others measured end to end: those of
aiconfigurator-core 0.12.0 (Apache-2.0) that have one pool of GPUs and can be described, {n} of
{total} rows of the file. `python -m bench.serving.given FILE --write` writes this page. Left out
are models with layers that `htk` does not know (Qwen3.5, GLM-5), attention on each GPU's own
requests, and rows whose GPUs do not add up. Nothing of the plan was fitted to these rows but this:
an engine takes the fastest library's kernels for experts, and measured products hold the gaps
around them.

- Keys and values are taken to be in FP8 where weights are in FP8 or NVFP4: the file does not say.
  Nor does it say which rows drafted tokens: of DeepSeek's, some took half of what others of the
  same kind did, and no plan can tell them apart.
- *first token* is what a client saw that begins so many requests at once and sends the next as one
  is answered, ten rounds of them: a tenth wait for all others' prompts. 40 ms of a request's way
  are added, chosen on these rows; a plan says the time without either.
- *held*: how often the 90 % interval of the plan did. It learnt from [other
  servers](serving_scorecard.md).

| engine | model | rows | token: median % | mean % | bias % | held % | first: median % | bias % |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True)
class GivenServer:
    """A measured server: what it is, and its times in ns."""

    engine: str
    server: Server
    load: Load
    requests: int
    first_ns: float
    token_ns: float


@dataclass(frozen=True)
class Missed:
    """By how much a plan missed: logarithms of planned over measured."""

    engine: str
    model: str
    first: float
    token: float
    held: bool  # the time of a token, within the interval


def judge_server(measured: GivenServer) -> Missed:
    """Return by how much the plan of a measured server missed."""
    steady = SteadyServer(measured.server, measured.load)
    planned = steady.answering(measured.requests)
    all_at_once, _ = time_batch(steady, measured.requests)
    first = (1 - _TOGETHER) * planned.ttft_ns + _TOGETHER * all_at_once / 2 + _FRONT_NS
    token = math.log(planned.tpot_ns / measured.token_ns)
    held = abs(token) <= math.log(estimate_serving_certainty(measured.server).factor(90))
    model = measured.server.model.name
    return Missed(measured.engine, model, math.log(first / measured.first_ns), token, held)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of the file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def describe_servers(rows: Iterable[Mapping[str, str]]) -> Iterator[GivenServer]:
    """Yield the servers of one pool of GPUs that can be described."""
    for row in rows:
        model = _find_model(row["model_path"])
        concurrency = _CONCURRENCY.search(row["silicon_data_source"])
        if model is None or concurrency is None or not _is_one_pool(row):
            continue
        yield GivenServer(
            row["backend"],
            _describe_server(model, row),
            Load(int(row["isl"]), int(row["osl"])),
            int(concurrency[1]),
            1e6 * float(row["silicon_ttft_ms"]),
            1e6 * float(row["silicon_tpot_ms"]),
        )


def _describe_server(model: Decoder, row: Mapping[str, str]) -> Server:
    weights = _WEIGHTS[row["gemm_quant_mode"]]
    kv_cache = "fp8" if weights in ("fp8", "nvfp4") else "bf16"
    if model.name == "gpt-oss-120b" and weights == "nvfp4":
        weights = "mxfp4"
    gpus = int(float(row["tp_size"]))
    return Server(model, gpu(_GPUS[row["system"]]), gpus, weights=weights, kv_cache=kv_cache)


def _find_model(path: str) -> Decoder | None:
    name = path.rpartition("/")[2]
    for ending in ("-NVFP4", "-FP8", "-Instruct"):
        name = name.removesuffix(ending)
    return _OTHERS.get(name) or find_preset(name)


def _is_one_pool(row: Mapping[str, str]) -> bool:
    gpus = float(row["tp_size"] or 0)
    if row["mode"] != "agg" or gpus > 8 or float(row["attention_dp_size"] or 1) > 1:
        return False
    shared = max(float(row["moe_tp_size"]), 1) * max(float(row["moe_ep_size"]), 1)
    return shared == gpus or any(name in row["model_path"] for name in _DENSE)


def write_page(rows: list[dict[str, str]]) -> str:
    """Return the page of these rows."""
    missed = [judge_server(server) for server in describe_servers(rows)]
    kinds = sorted({(miss.engine, miss.model) for miss in missed})
    lines = [_write_line("all", "all", missed)]
    for engine, model in kinds:
        own = [miss for miss in missed if (miss.engine, miss.model) == (engine, model)]
        lines.append(_write_line(engine, model, own))
    return _HEAD.format(n=f"{len(missed):,}", total=f"{len(rows):,}") + "".join(lines)


def _write_line(engine: str, model: str, missed: list[Missed]) -> str:
    token = [100 * abs(math.expm1(miss.token)) for miss in missed]
    first = [100 * abs(math.expm1(miss.first)) for miss in missed]
    token_bias = 100 * math.expm1(median(miss.token for miss in missed))
    first_bias = 100 * math.expm1(median(miss.first for miss in missed))
    held = 100 * mean(miss.held for miss in missed)
    return (
        f"| {engine} | {model} | {len(missed)} | {median(token):.1f} | {mean(token):.1f} |"
        f" {token_bias:+.0f} | {held:.0f} | {median(first):.0f} | {first_bias:+.0f} |\n"
    )


def main() -> int:
    """Print the page, and with --write renew it."""
    parser = argparse.ArgumentParser(prog="python -m bench.serving.given")
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true", help="renew the page")
    arguments = parser.parse_args()
    page = write_page(read_rows(arguments.file))
    sys.stdout.write(page)
    if arguments.write:
        _PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
