"""Rules that hold for every parser and every analysis, present and future."""

import ast
import dataclasses
import functools
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
import typing
from collections import defaultdict
from pathlib import Path

import click
import grimp
import pytest

import htk
from htk import analyses
from htk.analyses import ANALYSES, menu
from htk.base.core.parser import HEAD_BYTES, Head
from htk.base.io.sources import read_head, resolve_inputs
from htk.base.schema import DERIVED, TABLES, doc_of, index_of, unit_of
from htk.base.schema.columns import heading_of
from htk.faces.cli.main import htk as main
from htk.faces.mcp.tools import list_tools
from htk.faces.mcp.traces import Traces
from htk.parsers import list_parsers
from htk.recording.simulate.config import Config

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_traces"
FORMATS = {parser.NAME for parser in list_parsers()}
SAMPLE_FILES = [
    path
    for path in sorted(SAMPLES.rglob("*"))
    if path.relative_to(SAMPLES).parts[0] in FORMATS
    and path.is_file()
    and path.name != "README.md"
    and path.stat().st_size  # a dump of 0 bytes is a sample of a killed process
]
SIMPLE = (int, float, str, bool)
# Columns have one word for a thing: device_ns (GPU time of launched work, device_busy_ns where
# overlaps count once), kernels (GPU activities of it), count (what a row stands for).
OTHER_WORDS = {
    "gpu_ns",
    "kernel_ns",
    "gpu_busy_ns",
    "gpu_time_ns",
    "calls",
    "activities",
    "num",
    "n",
}
NUMBERS = (
    "htk/base/columns", "htk/physics", "htk/planning", "htk/quantities/derived",
    "htk/quantities/graph", "htk/quantities/measures", "htk/traces/compare", "htk/verdicts/claims",
    "htk/verdicts/economics", "htk/whatif", "parsers",
)  # fmt: skip
SOURCES = ("htk", "analyses", "dashboard", "parsers")
# They say nothing of what a local holds.
EMPTY_NAMES = {
    "found", "mine", "place", "one", "at", "made", "known", "given", "told", "said", "its",
    "which", "whole",
}  # fmt: skip
# Names that a contract sets (of a command, a format, an edit, a page, a check, a child process, a
# table that a registry finds by its name), and those that users type.
ONE_WORD = {
    "activities", "add", "analysis", "apply", "capture", "catalog", "changes_", "checks", "clear",
    "command", "compare", "decoder", "flops", "gpu", "hang", "htk", "layout", "list_", "ls", "main",
    "mark_", "need", "open", "parse", "plan", "question", "recommendations", "roofline", "run",
    "serve", "sniff", "stalls", "stragglers", "table", "verify", "whatif",
}  # fmt: skip
MOST_LINES = 440  # of a module: what is longer holds several things
# Options have one name for a meaning: how its help begins, and what it is by default.
OPTIONS: dict[str, tuple[str, object]] = {
    "accumulation": ("Micro-batches per step", 1),
    "active_experts": ("Experts per token", None),
    "align": ("Align the clocks of all ranks", True),
    "annotation": ("Only inside user ranges whose name matches", None),
    "attention": ("flash, or materialised", "flash"),
    "base_ranks": ("Ranks of the base recording", None),
    "before": ("Only runs before this time", None),
    "by": ("What a row stands for", ...),  # the first of its choices
    "cache_by_content": ("Name cache entries by a hash of the bytes", False),
    "checkpoint": ("Time that a checkpoint stops the job", None),
    "compat": ("Count as HTA does", None),
    "context_parallel": ("GPUs that share each sequence", 1),
    "cycles": ("Only these recordings of a rank that has several", None),
    "domain": ("GPUs joined by fast links", None),
    "expert_parallel": ("GPUs that the experts are spread over", 1),
    "experts": ("Experts per layer", None),
    "failures": ("Interruptions counted", None),
    "ffn": ("Width of the feed-forward layer", None),
    "form": ("Output format", ...),
    "from_": ("Start of the time window", None),
    "fused_loss": ("Compute the loss in place", None),
    "gated": ("Gated feed-forward", None),
    "global_batch": ("Samples per step of the whole job", None),
    "gpu": ("GPU of the hardware catalogue", None),
    "gpu_file": ("TOML file of GPUs", None),
    "gpu_mtbf": ("Time between failures of a GPU", None),
    "gpus": ("GPUs of the ", ...),
    "gpus_per_node": ("GPUs per node", 8),
    "head_size": ("Width of a head", None),
    "heads": ("Attention heads", None),
    "hidden": ("Width of the model", None),
    "inter_gbps": ("Rate of a node to the others, GB/s one way", None),
    "inter_gbps_per_gpu": ("Rate of a GPU to other nodes", None),
    "intra_gbps": ("Rate between GPUs of a node, GB/s one way", None),
    "job": ("One of several jobs", None),
    "keep_overruns": ("Keep GPU activities that last over those that follow", False),
    "keep_unknown_arguments": ("Keep event arguments that no table has a column for", False),
    "kernels": ("fused, or eager", "fused"),
    "kv_heads": ("Key-value heads", None),
    "layers": ("Layers of the model", None),
    "limit": ("Maximum rows", 200),
    "lora_rank": ("Train only LoRA adapters of this rank", None),
    "match": ("Regular expression that names must match", None),
    "memory_bytes": ("Memory for answers by rank", None),
    "micro_batch": ("Sequences per micro-batch and GPU", 1),
    "min_pct": ("Leave out what is smaller, in %", 1.0),
    "model": ("Model: ", None),
    "n": ("Rows to show", 20),
    "name": ("Only GPU activities whose name matches", None),
    "network": ("Network between nodes", None),
    "new_ranks": ("Ranks of the new recording", None),
    "no_browser": ("Do not open a browser", False),
    "no_cache": ("Parse the files again and store nothing on disk", False),
    "nodes": ("Nodes of the cluster", 1),
    "on": ("Where files are read and ranks processed", None),
    "optimizer": ("adam", "adam"),
    "output": ("", ...),  # a file or a folder to write to
    "per": ("What a row covers", ...),
    "pipeline_parallel": ("Stages of the pipeline", 1),
    "port": ("Port to listen on", 8050),
    "precision": ("Type of matrix products", "bf16"),
    "price": ("Price of a GPU-hour", None),
    "rank": ("Rank of a single file", None),
    "rank_pattern": ("Regular expression whose group finds the rank", None),
    "ranks": ("Only these ranks, e.g. 0,2..5", None),
    "raw": ("Write text to CSV unchanged", False),
    "restart": ("Time from a failure until the job resumes", None),
    "run_tokens": ("Tokens of the whole run", None),
    "seq": ("Tokens per sequence", 2048),
    "sequence_parallel": ("Sequence parallelism with tensor parallelism", ...),
    "series_tags": ("Tags that runs must share", "model"),
    "shared_ffn": ("Width of the shared experts", None),
    "show": ("What of the plan", ...),
    "since": ("Only runs since this time, UTC", None),
    "site": ("Figures of this site", None),
    "slices": ("Slices of time of equal width", 50),
    "source_depth": ("Lines of the program in a row by source", 1),
    "step": ("Number of the step; by default the steadiest", None),
    "steps": ("Only these profiler steps, e.g. 3..4", None),
    "store": ("Folder or URL ", None),
    "store_key": ("Key of a store", None),
    "strategy": ("Sharding: ", None),
    "streams": ("Only GPU activities of these streams, e.g. 7,20..23", None),
    "strict": ("Fail where a file is damaged, unread or incomplete", False),
    "tags": ("Tags of a run", None),
    "tensor_parallel": ("GPUs that share each layer", 1),
    "tied": ("Output layer that shares", None),
    "time_unit": ("Unit of operation-level rows", None),
    "title": ("Title; by default the name of the recording", None),
    "to": ("End of the time window", None),
    "tokens_per_s": ("Tokens per second", None),
    "virtual_stages": ("Interleaved parts of a stage", 1),
    "vocab": ("Size of the vocabulary", None),
    "watts": ("Power of a GPU", None),
}
# A described job counts steps and says whether it recomputes; agents read every row of an answer;
# a viewer that is closed again takes any port.
OTHER_OPTIONS = {
    ("simulate", "steps"), ("job-time", "steps"), ("simulate", "checkpointing"),
    ("plan", "checkpointing"), ("mcp", "limit"), ("open", "port"), ("mcp", "port"),
    ("claim", "checkpointing"), ("kernel-time", "n"), ("kernel-time", "ranks"),
    ("kernel-time", "op"),
}  # fmt: skip
# What a claim leaves out is not known; a job's file may say it, or another option; a kernel's file.
OPEN = {"claim", "job-time", "simulate", "kernel-time"}
LEFT_OPEN = {"accumulation", "global_batch", "precision"}  # taken from the GPU or the batch
# Numbers are texts such as 3..5min, h100=700, or as a cell of a file.
RANGES = {"goodput", "job-time", "prices", "kernel-time"}
OTHER_TYPES = {("claim", "gpus"), ("claim", "tokens_per_s")}  # texts: 64xA100, 140k
# An edit of a what-if is text: a number of a described job's quantity, or a change such as 2x.
EDITED = {
    "batch": "micro_batch", "seq": "seq", "accumulation": "accumulation", "graphs": "graphs",
    "checkpointing": "checkpointing", "precision": "precision", "tp": "tensor_parallel",
    "sharding": "strategy", "hardware": "gpu", "world": "nodes", "network": "network",
    "pp": "pipeline_parallel", "cp": "context_parallel", "ep": "expert_parallel",
    "sp": "sequence_parallel", "attention": "attention", "optimizer": "optimizer",
    "no_sync": "no_sync",
}  # fmt: skip
OTHER_OPTION_NAMES = {
    "top": "n", "rows": "limit", "max_rows": "limit", "num": "n", "least": "min_pct",
    "min_share": "min_pct", "pattern": "match", "regex": "match", "operator": "match",
    "gpu_name": "gpu", "gpu_type": "gpu", "device_name": "gpu", "parts": "slices",
    "points": "slices", "order_by": "sort_by", "rank_by": "sort_by", "split": "by",
    "group_by": "by", "link_gbps": "intra_gbps", "nic_gbps": "inter_gbps", "tokens": "run_tokens",
    "keep_arguments": "keep_unknown_arguments", "token_count": "run_tokens",
    "tp_size": "tensor_parallel", "batch_size": "micro_batch", "seq_len": "seq",
    "begin": "from_", "start": "from_", "end": "to", "until": "to",
}  # fmt: skip
# Columns that carry a mean under the name of what they hold for one rank, or in another's log.
OTHER_STATISTICS = {("RETURNS", "total_ns")}
HEAVY = ("pandas", "plotly", "dash", "torch", "hta", "duckdb", "pyarrow")


@pytest.mark.parametrize("path", SAMPLE_FILES, ids=lambda p: str(p.relative_to(SAMPLES)))
def test_exactly_one_parser_claims_each_sample_whatever_its_name(path: Path) -> None:
    start = read_head(resolve_inputs(path)[0])
    neutral = Head("trace", start.data, start.is_complete)
    assert [p.NAME for p in list_parsers() if p.sniff(neutral)] == [
        path.relative_to(SAMPLES).parts[0]
    ]


@pytest.mark.parametrize("parser", list_parsers(), ids=lambda p: p.NAME)
def test_a_parser_says_what_it_reads_and_has_a_sample(parser: typing.Any) -> None:
    assert (parser.__doc__ or "").strip()
    assert any(p.relative_to(SAMPLES).parts[0] == parser.NAME for p in SAMPLE_FILES)


@pytest.mark.parametrize("data", [b"", b"hello", b"{}", b"[]", b"\x00" * 99, b"<p>", b'{"a":1}'])
def test_no_parser_claims_what_is_no_trace(data: bytes) -> None:
    assert [p.NAME for p in list_parsers() if p.sniff(Head("x", data[:HEAD_BYTES], True))] == []


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_is_labelled(name: str) -> None:
    analysis = analyses.find_analysis(name)
    assert analysis.question.endswith("?")
    assert analysis.name == name == analysis.function.__module__.rsplit(".", 1)[-1]
    assert all(doc_of(field) for field in analysis.returns), "a line of meaning for each column"
    for option in analysis.options.values():
        assert option.doc, f"{option.name} needs its line"
        assert option.default is not inspect.Parameter.empty
        assert _is_simple(option.type), f"{option.name}: {option.type}"
    for read in analysis.reads:
        assert read in TABLES or read in DERIVED or read in ANALYSES


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_has_a_test(name: str) -> None:
    folder = Path(ANALYSES[name].module.replace(".", "/")).parent
    tests = ROOT / ("tests" if folder.parts[0] == "analyses" else "tests/htk") / folder
    assert any(name in path.read_text() for path in tests.glob("*.py")), f"{tests} knows it not"


def test_the_menu_is_what_the_folders_hold() -> None:
    assert menu.build_menu_source() in (ROOT / "analyses/__init__.py").read_text()


@pytest.mark.parametrize("name", [*TABLES, *DERIVED])
def test_a_column_of_the_vocabulary_has_a_line(name: str) -> None:
    for field in {**TABLES, **DERIVED}[name]:
        assert doc_of(field), field.name
        assert index_of(field) in ("", *TABLES), field.name


def test_a_name_of_a_column_has_one_type_wherever_it_occurs() -> None:
    types = defaultdict(lambda: defaultdict(list))
    for owner, field in _columns():
        types[field.name][str(field.type)].append(owner)
    assert not {name: dict(owners) for name, owners in types.items() if len(owners) > 1}


def test_names_of_columns_follow_the_lexicon() -> None:
    """The statistic stands after the unit, shares end in _pct, one thing has one name."""
    names = {field.name: owner for owner, field in _columns()}
    owners = {owner for owner, _ in _columns()}
    assert len(names) > 500 and len(owners) > 100
    assert owners >= {
        "htk.whatif.label.TRAFFIC", "htk.verdicts.verify.outcome.RETURNS",
        "htk.traces.compare.runs.RETURNS", "htk.traces.compare.regression.RETURNS",
        "htk.verdicts.overview.doctor.RETURNS", "htk.verdicts.overview.summary.RETURNS",
    }  # fmt: skip
    early = re.compile(
        r"(^|_)(mean|median|avg|min|max|std|sigma|p\d\d)_(\w+_)?(ns|us|ms|bytes|gbps|pct)$"
    )
    assert not {name: owner for name, owner in names.items() if early.search(name)}
    assert not {name for name in names if "median" in name or re.search(r"_avg|^avg", name)}
    assert not {n for n in names if "pct" in n.split("_") and unit_of(n) != "%"}
    assert not {n for n in names if n == "pct" or n.startswith("pct_") or "percent" in n}
    assert not {name: names[name] for name in names if name in OTHER_WORDS}
    for owner, field in _columns():
        doc, statistic = doc_of(field), field.name.split("_")
        assert doc, f"{owner} {field.name} has no line of meaning"
        for word, suffix in (("Mean", "mean"), ("Median", "p50")):
            kept = (owner.rpartition(".")[2], field.name) in OTHER_STATISTICS
            assert kept or not doc.startswith(word) or suffix in statistic, f"{owner} {field.name}"


@pytest.mark.parametrize(
    ("name", "unit", "heading"),
    [
        ("step_time_ns", "ns", "step time"), ("call_ns_p50", "ns", "call p50"),
        ("busy_pct", "%", "busy %"), ("busy_pct_mean", "%", "busy % mean"),
        ("step_time_ns_lo90", "ns", "step time, 90 % from"),
        ("share_pct_hi50", "%", "share %, 50 % to"),
        ("in_bytes", "bytes", "in"), ("flops_per_byte", "", "flops per byte"), ("ns", "", "ns"),
        ("duration_ns_p95", "ns", "p95"), ("duration_ns", "ns", "duration"),
    ],
)  # fmt: skip
def test_a_name_states_unit_and_statistic(name: str, unit: str, heading: str) -> None:
    assert (unit_of(name), heading_of(name)) == (unit, heading)


@functools.cache
def _columns() -> list[tuple[str, typing.Any]]:
    """Every column of every table that a module declares."""
    schemas = {}
    for package in SOURCES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if not _is_own(file):
                continue
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            name = name if name.startswith("htk.") else f"htk.{name}"
            text = file.read_text(encoding="utf-8")
            if " = table(" not in text:
                continue
            for node in ast.parse(text).body:
                call = node.value if isinstance(node, ast.Assign) else None
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "table":
                    module = importlib.import_module(name)
                    for target in ast.walk(node):
                        if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                            schemas[f"{name}.{target.id}"] = getattr(module, target.id)
    return [(owner, field) for owner, schema in schemas.items() for field in schema]


class CommandOption(typing.NamedTuple):
    command: str
    name: str
    kind: object
    default: object
    help: str


def _commands(group: click.Group, prefix: str = "") -> typing.Iterator[tuple[str, click.Command]]:
    """Every command and command of a group, by its name."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix}{name} ")
        elif command is not None:
            yield prefix + name, command


@functools.cache
def _options() -> list[CommandOption]:
    """Every option of every command; what a job leaves open is as the simulator has it."""
    simulated = {field.name: field.default for field in dataclasses.fields(Config)}
    options = []
    for command, loaded in _commands(main):
        for option in loaded.params:
            if not isinstance(option, click.Option):
                continue
            name = option.name or ""
            default = loaded.make_context(command, [], resilient_parsing=True).params.get(name)
            if command == "simulate" and default is None and option.type is not click.STRING:
                default = simulated.get(name) if name in OPTIONS else None
            options.append(CommandOption(command, name, option.type, default, option.help or ""))
    return options


def test_an_option_of_one_name_has_one_meaning_and_one_default() -> None:
    owners = defaultdict(set)
    for option in _options():
        owners[option.name].add(option.command)
    shared = {name for name, commands in owners.items() if len(commands) > 1}
    assert len(_options()) > 900 and len(shared) > 40
    assert shared - {name for _, name in OTHER_OPTIONS} <= set(OPTIONS), "an entry in OPTIONS"
    for command, name, kind, default, help_ in _options():
        assert help_, f"{command} {name} has no help"
        if name not in OPTIONS or (command, name) in OTHER_OPTIONS:
            continue
        words, common = OPTIONS[name]
        assert help_.startswith(words), f"{command} {name}: {help_}"
        if common is not ...:
            left_open = default is None and (command in OPEN or name in LEFT_OPEN)
            assert left_open or (default or None) == (common or None), f"{command} {name}"
        if name in ("by", "per"):
            assert isinstance(kind, click.Choice) and default == kind.choices[0], command


def test_an_option_of_one_name_has_one_type() -> None:
    kinds = defaultdict(lambda: defaultdict(list))
    for option in _options():
        if option.command in RANGES or (option.command, option.name) in OTHER_TYPES:
            continue
        if (option.command, option.name) not in OTHER_OPTIONS:
            kinds[option.name][re.sub("Range$", "ParamType", type(option.kind).__name__)].append(
                option.command
            )
    assert not {name: dict(owners) for name, owners in kinds.items() if len(owners) > 1}


def test_no_two_options_are_for_one_meaning() -> None:
    names = defaultdict(set)
    for option in _options():
        names[option.help].add(option.name)
    assert not [sorted(same) for same in names.values() if len(same) > 1]
    assert not {option for option in _options() if option.name in OTHER_OPTION_NAMES}
    begins = [words for words, _ in OPTIONS.values() if words]
    assert len(begins) == len(set(begins))
    described = {option.name for option in _options() if option.command in ("plan", "simulate")}
    edits = {o.name.removeprefix("edit_") for o in _options() if o.name.startswith("edit_")}
    assert set(EDITED) <= edits and set(EDITED.values()) <= described
    assert not (edits & described) - set(EDITED), "one quantity in a job and in an edit"


def test_the_python_functions_and_agents_tools_take_the_options_of_the_commands() -> None:
    signatures = {"open": htk.open, "report": htk.Session.report, "diff": htk.Session.diff}
    signatures |= {name: tool for name, _, tool in list_tools(typing.cast(Traces, None))}
    seen = 0
    for owner, function in signatures.items():
        for name, parameter in inspect.signature(function).parameters.items():
            assert name not in OTHER_OPTION_NAMES, f"{owner} {name}"
            if name not in OPTIONS or parameter.default is inspect.Parameter.empty:
                continue
            seen += 1
            if OPTIONS[name][1] is not ... and name != "limit":
                assert (parameter.default or None) == (OPTIONS[name][1] or None), f"{owner} {name}"
    assert seen > 100


def test_guests_names_are_complete_and_sorted() -> None:
    assert htk.__all__ == sorted(htk.__all__)
    assert all(getattr(htk, name) is not None for name in htk.__all__)
    assert not {"parsers", "analyses", "dashboard"} & set(htk.__all__), "a room is no function"


@pytest.mark.parametrize("package", SOURCES)
def test_texts_name_commands_with_dashes(package: str) -> None:
    """In SQL, Python and agents' tools names have underscores; people read names of commands."""
    name = re.compile(rf"\b({'|'.join(n for n in ANALYSES if '_' in n)})\b")
    wrong = []
    for file in sorted((ROOT / package).rglob("*.py")):
        if not _is_own(file) or file.name in ("sql.py", "guides.py"):
            continue
        text = file.read_text(encoding="utf-8")
        if not name.search(text):
            continue
        tree = ast.parse(text)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        wrong += [
            f"{file.relative_to(ROOT)}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in docstrings and " " in node.value and name.search(node.value)
        ]
    assert not wrong


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from htk.faces.cli.main import run_command_line; run_command_line(['--help']);"
    )
    code += "sys.stderr.write(','.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {m.partition(".")[0] for m in done.stderr.split(",")} & {*HEAVY, "numpy", "rich"}
    for name in ANALYSES:
        assert name.replace("_", "-") in done.stdout


def test_import_htk_imports_nothing_heavy() -> None:
    code = "import sys, htk; htk.open; print(','.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {m.partition(".")[0] for m in done.stdout.split(",")}
    assert not loaded & (set(HEAVY) - {"pyarrow"})


def test_version_says_what_runs_here() -> None:
    done = _htk("--version", "--verbose")
    assert "ingest engine: " in done.stdout and "cache folder: " in done.stdout


def test_json_of_an_answer_has_the_documented_shape() -> None:
    answer = json.loads(_htk("time-breakdown", "sample", "--format", "json").stdout)
    assert list(answer) == ["analysis", "schema_version", "columns", "rows", "coverage"]
    assert answer["analysis"] == "time_breakdown"
    assert {c["name"]: c["unit"] for c in answer["columns"]}["busy_ns"] == "ns"
    assert set(answer["rows"][0]) == {c["name"] for c in answer["columns"]}


@pytest.mark.parametrize("package", SOURCES)
def test_functions_say_what_they_do_to_what(package: str) -> None:
    files = [file for file in sorted((ROOT / package).rglob("*.py")) if _is_own(file)]
    short = [
        f"{file.relative_to(ROOT)}: {statement.name}"
        for file in files
        for statement in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        and "_" not in statement.name.strip("_")
        and statement.name not in ONE_WORD
        and not statement.name.startswith("__")
    ]
    assert not short


@pytest.mark.parametrize("package", (*SOURCES, "bench", "docs", "native", "sample_traces", "tests"))
def test_locals_say_what_they_hold(package: str) -> None:
    files = [file for file in sorted((ROOT / package).rglob("*.py")) if _is_own(file)]
    files = [file for file in files if not file.name.startswith("test_")]  # helpers of tests count
    assert files
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    any_empty = re.compile(rf"\b({'|'.join(EMPTY_NAMES)})\b")
    empty = [
        f"{file.relative_to(ROOT)}::{function.name}: {name}"
        for file, text in texts.items()
        if any_empty.search(text)
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in sorted(_locals(function) & EMPTY_NAMES)
    ]
    assert not empty


@pytest.mark.parametrize("package", SOURCES)
def test_no_module_is_too_long_to_survey(package: str) -> None:
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines())
        for file in sorted((ROOT / package).rglob("*.py"))
        if _is_own(file)
    }
    assert lengths
    assert not {name: lines for name, lines in lengths.items() if lines > MOST_LINES}


def test_modules_that_make_numbers_have_tests_of_their_name() -> None:
    listed = tomllib.loads((ROOT / "tests/tested_elsewhere.toml").read_text())
    alone = set()
    for package in NUMBERS:
        tests = ROOT / "tests" / package
        for file in sorted((ROOT / package).rglob("*.py")):
            inside = file.relative_to(ROOT / package)
            if not _computes(file):
                continue
            if inside.name == "__init__.py":
                if inside.parent == Path():
                    continue
                inside = inside.parent.with_suffix(".py")
            if not (tests / inside.parent / f"test_{inside.stem}.py").exists():
                alone.add(str(file.relative_to(ROOT)))
    assert not sorted(alone - set(listed)), "each needs tests/…/test_<its name>.py"
    assert not sorted(set(listed) - alone), "gone, or tested under their own names by now"
    for module, tests_file in listed.items():
        assert (ROOT / tests_file).is_file(), f"{module}: no {tests_file}"


def _computes(file: Path) -> bool:
    """Whether a module defines a function; types, constants and fields alone answer nothing."""
    return re.search(r"^ *def \w+\(", file.read_text(encoding="utf-8"), re.MULTILINE) is not None


def test_tests_share_helpers_by_modules_that_say_so() -> None:
    """Helpers stand in modules of their own, so that no test file is collected for another's."""
    borrowing = re.compile(r"^ *from tests\.(?:\w+\.)*test_\w+ import", re.MULTILINE)
    texts = {file: file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py")}
    borrowed = [
        f"{file.relative_to(ROOT)}: {node.module}"
        for file, text in texts.items()
        if borrowing.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.")
        if (node.module or "").rpartition(".")[2].startswith("test_")
    ]
    assert not borrowed


def test_no_two_public_classes_share_a_name() -> None:
    homes = defaultdict(list)
    for package in SOURCES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if not _is_own(file):
                continue
            text = file.read_text(encoding="utf-8")
            if not re.search(r"^class [A-Za-z]", text, re.MULTILINE):
                continue
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(str(file.relative_to(ROOT)))
    assert len(homes) > 300
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_an_empty_name_is_seen_wherever_it_is_bound() -> None:
    text = (
        "def f(a, *b, c=1, **d):\n e = [g for g in a]\n def h(): pass\n return lambda i: (k := i)"
    )
    (function,) = ast.parse(text).body
    assert _locals(function) == set("abcdeghik")


def _locals(function: ast.AST) -> set[str]:
    """Parameters and names bound within a function, and the functions defined there."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef) and node is not function:
            names.add(node.name)
    return names


def _is_own(file: Path) -> bool:
    """Whether no folder above it is a link: what lies behind one is read where it lies."""
    return not any(folder.is_symlink() for folder in file.parents)


def _htk(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "htk", *args]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def _is_simple(hint: typing.Any) -> bool:
    if hint in SIMPLE or hint is type(None):
        return True
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return all(isinstance(i, SIMPLE) for i in inner)
    return bool(inner) and all(_is_simple(i) for i in inner if i is not Ellipsis)


def test_the_architecture_is_drawn_as_the_import_contract_has_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [
        {name.strip().removeprefix("htk.") for name in layer.split("|")}
        for layer in contracts["contracts"][0]["layers"]
    ]
    page = (ROOT / "docs/architecture.md").read_text()
    picture = page.split("```")[1].strip().splitlines()
    drawn = [set(line.split("   ")[0].split()) for line in picture]
    assert drawn == [layer for layer in layers if layer != {"__main__"}]
    packages = {path.parent.name for path in (ROOT / "htk").glob("*/__init__.py")}
    assert packages <= set().union(*layers), "a package without a layer"


@pytest.mark.parametrize("parser", list_parsers(), ids=lambda p: p.NAME)
def test_a_parser_is_in_the_contract_of_independence(parser: typing.Any) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (independent,) = (c for c in contracts["contracts"] if c["type"] == "independence")
    assert parser.__name__ in independent["modules"]


@pytest.mark.parametrize("way", ["The way of one trace", "The way of one prediction"])
def test_each_name_on_the_way_through_the_packages_exists(way: str) -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.partition(f"## {way}\n")[2].partition("\n## ")[0]
    names = re.findall(r"`([a-z_]+(?:\.\w+)+)(?:\(\))?`", section)
    assert len(names) >= 8
    for name in names:
        pkgutil.resolve_name(f"htk.{name}")


def test_a_package_says_what_comes_in_what_goes_out_and_what_it_may_import() -> None:
    packages = {path.name for path in (ROOT / "htk").iterdir() if path.is_dir()} - {"__pycache__"}
    files = {path.name for path in (ROOT / "htk").iterdir() if path.is_file()}
    assert len(packages) <= 14 and files == {"__init__.py", "__main__.py", "py.typed"}
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    for package in packages:
        doc = ast.get_docstring(ast.parse((ROOT / f"htk/{package}/__init__.py").read_text())) or ""
        assert all(word in doc for word in ("In:", "Out:", "May import")), package
        assert f"| `{package}" in text, package


def test_no_package_holds_more_than_a_fifth_of_the_code() -> None:
    lines = {
        package.name: sum(len(file.read_text().splitlines()) for file in package.rglob("*.py"))
        for package in (ROOT / "htk").iterdir()
        if package.is_dir()
    }
    for name in ("analyses", "dashboard", "parsers"):  # rglob follows no links
        lines[name] = sum(len(f.read_text().splitlines()) for f in (ROOT / name).rglob("*.py"))
    assert max(lines.values()) <= 0.2 * sum(lines.values()), lines


def test_no_file_imports_itself_through_others() -> None:
    """Imports for types alone count too."""
    graph = grimp.build_graph("htk", cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    while leaves := {name for name, others in imported.items() if not others & imported.keys()}:
        imported = {name: others for name, others in imported.items() if name not in leaves}
    assert not imported, f"these import each other, or what does: {sorted(imported)}"
