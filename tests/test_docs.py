"""Docs and tool say the same: every name is documented, every command of the docs runs."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import click
import pytest

from htk.analyses import ANALYSES, find_analysis
from htk.base.errors import HtkError
from htk.base.schema import DERIVED, TABLES
from htk.faces.cli import main
from htk.parsers import list_parsers
from htk.whatif.edits import all_edits
from tests.htk.verdicts.history.recorded_runs import BASE_NS, recording
from tests.server_recording import write_server

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in [ROOT / "README.md", *DOCS.rglob("*.md")] if "notebooks" not in p.parts)
_TENSOR = "--model gpt3-126m --layers 2 --nodes 1 --gpus-per-node 2 --tensor-parallel 2 --steps 3"
_BLOCK = re.compile(r"```(?:console|sh)\n(.*?)```", re.DOTALL)
_DECODE = "tests/recordings/decode/batch_64_context_4096"
_SERVERS = {"dashboard", "mcp", "open"}
_OF_OTHERS = {"slowest-lap"}  # of a package that another test installs


@cache
def _site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("htk_site_pages", DOCS / "site/pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _generated() -> dict[str, str]:
    found: dict[str, str] = _site().generated()
    return found


def _commands() -> list[tuple[str, str]]:
    """Every htk command of the pages once: the first page that names it, and the line."""
    pages: dict[str, str] = {}
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                bare = line.removeprefix("$ ").partition("  #")[0].partition(" > ")[0].strip()
                if page.name == "slower.md":  # whose commands run one after another
                    continue
                if bare.startswith("htk ") and bare.split()[1] not in _OF_OTHERS:
                    pages.setdefault(bare, page.name)
    return [(page, command) for command, page in pages.items()]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has the runs of which the docs speak; all commands are given there, one after
    another, as by who reads the pages: each run is read once."""
    folder = tmp_path_factory.mktemp("recorded")
    for name in ("latest", "main", "new", "step_100"):
        shutil.copytree(ROOT / "htk/traces/sample", folder / "runs" / name)
    shutil.copytree(ROOT / "sample_traces/operation_rows", folder / "jobs")
    card = re.search(r"```toml\n(# my\.toml.*?)```", (DOCS / "gpus.md").read_text(), re.DOTALL)
    assert card is not None
    (folder / "my.toml").write_text(card[1])
    prices = re.search(r"```toml\n(currency.*?)```", (DOCS / "prices.md").read_text(), re.DOTALL)
    assert prices is not None
    (folder / "prices.toml").write_text(prices[1])
    (folder / "kernels.csv").write_text("op,gpu,m,n,k\nmatmul,h100,8192,4096,4096\n")
    (folder / "site.toml").write_text("[a100-80gb]\nlinks = { ratio = 0.9, recordings = 1 }\n")
    for day, name in enumerate(("monday", "tuesday", "wednesday")):
        recording(folder / "runs" / name, base=BASE_NS + day)
    write_server(folder / "runs/server/rank0.json")
    return folder


@pytest.fixture
def workplace(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, with no run in the history."""
    monkeypatch.setenv("HTK_HISTORY", str(tmp_path / "history"))
    monkeypatch.chdir(recorded)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def tensor(recorded: Path) -> None:
    """A job whose ranks share each layer."""
    assert (
        main.run_command_line(["simulate", *_TENSOR.split(), "-o", str(recorded / "runs/tensor")])
        == 0
    )


@pytest.fixture(scope="module")
def study(recorded: Path) -> None:
    """The simulated job of the FSDP study, made by the command that its page begins with."""
    (line,) = (command for page, command in _commands() if _makes_study(page, command))
    assert main.run_command_line([*shlex.split(line)[1:-1], str(recorded / "runs/study")]) == 0


def _makes_study(page: str, command: str) -> bool:
    return page == "fsdp_study.md" and command.endswith(" -o runs/study")


def test_the_page_of_slower_jobs_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    asked = 0
    every_line: list[str] = []
    for block in _BLOCK.findall((DOCS / "slower.md").read_text(encoding="utf-8")):
        for part in re.sub(r"\\\n\s*", "", block).split("$ ")[1:]:
            command, *shown = part.splitlines()
            assert main.run_command_line(shlex.split(command)[1:]) == 0
            printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
            assert set(shown) <= set(printed), command
            asked += len(shown)
            every_line += printed
    assert asked == 8
    gate = (DOCS / "gate.md").read_text(encoding="utf-8").partition("```text\n")[2]
    assert set(gate.partition("```")[0].splitlines()) <= set(every_line), "of the same two runs"


@pytest.mark.parametrize(("page", "command"), _commands(), ids=lambda text: str(text)[:70])
def test_commands_of_the_docs_run(
    page: str,
    command: str,
    workplace: None,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if _makes_study(page, command):
        request.getfixturevalue("study")
        return
    words = [("sample" if w == "PATH" else w) for w in shlex.split(command)[1:]]
    if "perf.json" in words and words[0] == "diff":
        assert main.run_command_line(["baseline", "runs/main", "-o", "perf.json"]) == 0
    if words[0] == "history" or "--last-good" in words:
        for name in ("monday", "tuesday", "wednesday"):
            assert (
                main.run_command_line(
                    ["history", "add", f"runs/{name}", "--tags", "model=llama-8b"]
                )
                == 0
            )
            assert main.run_command_line(["history", "mark", name, "--good"]) == 0
    for name in ("tensor", "study"):
        if f"runs/{name}" in command:
            request.getfixturevalue(name)
    if words[0] in _SERVERS:
        words.append("--help")
    if "report.pdf" in words and not shutil.which("chromium"):
        pytest.skip("a PDF needs Chromium")
    code = main.run_command_line(words)
    assert code == 0, capsys.readouterr().err


def test_the_readme_shows_what_the_summary_prints(
    workplace: None, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("$ htk summary sample\n")[2].partition("```")[0].splitlines()
    assert main.run_command_line(["summary", "sample"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert len(shown) >= 10 and shown == printed[: len(shown)], "README.md: replace the lines shown"


@pytest.mark.parametrize(
    ("page", "after", "command"),
    [
        ("hang.md", "below it:", "hang sample_traces/flight_recorder/hang_missing_rank_v2.10"),
        ("slow_server.md", "## One command", f"summary {_DECODE}"),
    ],
)
def test_an_answer_on_a_page_is_what_is_printed(
    page: str,
    after: str,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A page may leave out words, where … stands, and columns, between two of the table."""
    monkeypatch.chdir(ROOT)
    below = (DOCS / page).read_text(encoding="utf-8").partition(after)[2]
    _, _, block = below.partition("```")[2].partition("\n")
    shown = [line for line in block.partition("```")[0].splitlines() if line[:1] != "$"]
    assert len(shown) >= 3
    assert main.run_command_line(command.split()) == 0
    printed = " ".join(capsys.readouterr().out.split())
    parts = (part.strip() for part in re.split(r"\s{2,}|\n|…", "\n".join(shown)))
    pattern = ".*".join(map(re.escape, parts))
    assert re.search(pattern, printed), f"docs/{page}: replace the lines shown"


def test_there_are_commands_in_the_docs() -> None:
    assert len(_commands()) > 20


def test_links_of_the_pages_lead_somewhere_in_the_repository() -> None:
    dead = [
        (page.name, link)
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert dead == []


@pytest.mark.parametrize("page", ["README.md", "docs/reading.md", "docs/gate.md"])
def test_each_table_of_exit_codes_is_whole(page: str) -> None:
    rows = re.findall(
        r"^\| (\d) \| [^|]+ \|$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {*map(int, rows)} == {0, *_exit_codes(HtkError)}


def _exit_codes(error: type[HtkError]) -> set[int]:
    return {error.exit_code}.union(*map(_exit_codes, error.__subclasses__()))


_VERBS = {  # what htk is said to do, where no command is meant
    "answers", "asks", "does", "draws", "drew", "gate", "has", "import", "imports", "keeps",
    "knows", "outside", "raises", "reads", "that", "trace", "trimmed", "would", "writes", "wrote",
}  # fmt: skip


def test_commands_that_texts_of_the_tool_name_exist() -> None:
    commands = {name.replace("-", "_") for name in main.htk.list_commands(click.Context(main.htk))}
    sources = [
        file
        for folder in ("htk", "parsers", "analyses", "dashboard")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".toml", ".txt", ".js", ".pyi")
    ]
    assert len(sources) > 800
    named = {
        (word, str(file.relative_to(ROOT)))
        for file in sources
        for word in re.findall(r"\bhtk ([a-z][a-z_-]*[a-z])\b", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 100
    assert not [(w, f) for w, f in named if w.replace("-", "_") not in commands | _VERBS]


@pytest.mark.parametrize("name", sorted(ANALYSES))
def test_every_analysis_is_documented(name: str) -> None:
    page, analysis = _generated()[f"analyses/{name}.md"], find_analysis(name)
    assert analysis.question in page and f"> {_site().formulas()[name]}" in page
    for field in analysis.returns:
        assert f"| `{field.name}` |" in page
    for option in analysis.options.values():
        assert f"`--{option.name.replace('_', '-')}`" in page and option.doc
    assert f"{name}.md" in _generated()["analyses/index.md"]


def test_no_formula_without_its_analysis() -> None:
    assert set(_site().formulas()) == set(ANALYSES)


def test_every_command_and_option_is_documented() -> None:
    page, context = _generated()["commands.md"], click.Context(main.htk)
    for name in main.htk.list_commands(context):
        command = main.htk.get_command(context, name)
        assert command is not None and command.help, name
        if name in ANALYSES:
            continue
        assert f"\n## {name}\n" in page
        for option in command.params:
            if isinstance(option, click.Option):
                assert all(f"`{flag}`" in page for flag in option.opts), (name, option.name)
                assert option.help or option.name == "form", (name, option.name)


@pytest.mark.parametrize("page", ["questions.md", "edits.md", "tables.md", "formats.md"])
def test_reference_pages_are_those_of_the_tree(page: str) -> None:
    shown = (DOCS / page).read_text(encoding="utf-8")
    assert shown == _site().written()[page], "make menu writes them"


def test_edits_tables_and_formats_are_documented() -> None:
    pages = _site().written()
    assert all(f"`--{e.NAME.replace('_', '-')}`" in pages["edits.md"] for e in all_edits())
    assert all(f"\n## {name}\n" in pages["tables.md"] for name in {**TABLES, **DERIVED})
    assert all(f"\n## {parser.NAME}\n" in pages["formats.md"] for parser in list_parsers())


@pytest.mark.nightly  # a minute; by day the links within the repository are followed
def test_the_site_builds_with_strict_links(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is an extra")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-s", "-d", str(tmp_path / "site")]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    assert "kernel_top" in (tmp_path / "site/analyses/kernel_top.html").read_text()


# What a page on extending says is done, in a copy of the project.


def _blocks(folder: str) -> dict[str, str]:
    """Code blocks that begin with the path they belong to, below a folder."""
    text = (DOCS / "extending.md").read_text(encoding="utf-8")
    found = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        first, _, rest = block.partition("\n")
        if first.startswith(f"# {folder}/") and first.endswith(".py"):
            found[first[2:]] = rest
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project's code, without samples and tests."""
    skip = shutil.ignore_patterns("__pycache__", "sample_traces", "*.png")
    for room in ("htk", "parsers", "analyses", "dashboard"):
        shutil.copytree(ROOT / room, tmp_path / room, symlinks=True, ignore=skip)
    return tmp_path


def _run(copy: Path, *words: str) -> str:
    program = subprocess.run(
        [sys.executable, "-m", *words], cwd=copy, capture_output=True, text=True, check=False
    )
    assert program.returncode == 0, program.stderr[-2000:]
    return program.stdout


def test_a_parser_is_added_as_its_page_says(copy: Path) -> None:
    for name, code in _blocks("parsers").items():
        (copy / name).write_text(code)
    index = copy / "parsers/__init__.py"
    before = '    "flight_recorder",\n'
    text = index.read_text().replace(before, before + '    "gpu_clock",\n')
    index.write_text(text)
    log = "gpuclock v1 host=node7\n1700000000000000000 0 1410\nbroken\n1700000001000000000 0 1395\n"
    (copy / "clocks.log").write_text(log)
    assert "gpu_clock" in _run(copy, "htk", "formats")
    said = _run(copy, "htk", "doctor", "clocks.log", "--no-cache", "--format", "csv")
    assert "gpu_clock" in said and "broken_line" in said
    asked = "select sum(value) as s from counters"
    told = _run(copy, "htk", "sql", "clocks.log", asked, "--no-cache", "--format", "json")
    assert "2805" in told


def test_an_analysis_is_added_as_its_page_says(copy: Path) -> None:
    for name, code in _blocks("analyses").items():
        (copy / name).write_text(code)
    _run(copy, "htk.analyses.menu")
    assert "How long does each stream pause" in _run(copy, "htk", "--help")
    said = _run(copy, "htk", "kernel_pauses", "sample", "--shortest-us", "5", "--format", "csv")
    header, *rows = said.replace('"', "").splitlines()
    assert header == "rank,stream,pauses,pause_ns" and len(rows) > 3
    asked = "select max(pauses) > 0 as some from kernel_pauses(shortest_us := 5)"
    assert "true" in _run(copy, "htk", "sql", "sample", asked, "--format", "json").lower()


def test_an_edit_is_added_as_its_page_says(copy: Path) -> None:
    for name, code in _blocks("htk/whatif/edits").items():
        (copy / name).write_text(code)
    index = copy / "htk/whatif/edits/__init__.py"
    text = index.read_text()
    index.write_text(text.replace('    "batch",\n', '    "batch",\n    "copies",\n', 1))
    code = (
        "import htk; t = htk.open('sample'); "
        "print(htk.whatif(t).change('copies', '2x').run().to_pylist()[0]['assumptions'])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False
    )
    assert "every copy and set takes 2 times less" in said.stdout, said.stderr[-2000:]


def test_every_promise_of_security_names_tests_that_are_there() -> None:
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    table = text.partition("| promise | held by |\n| --- | --- |\n")[2].partition("\n\n")[0]
    promises = table.splitlines()
    assert len(promises) > 10 and all("`: `test_" in promise for promise in promises)
    for promise in promises:
        for file, names in re.findall(r"`(tests/[\w/.]+)`: ((?:`\w+`(?:, )?)+)", promise):
            source = (ROOT / file).read_text(encoding="utf-8")
            for name in re.findall(r"`(\w+)`", names):
                assert re.search(rf"^def {name}\(", source, re.MULTILINE), (file, name)
