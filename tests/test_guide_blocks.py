"""The Python of README and guide runs as it is printed, in a folder as its pages suppose."""

import re
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import htk
from htk.analyses import ANALYSES

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
# Pages whose Python another file runs.
ELSEWHERE = {
    "extending.md": "tests/htk/base/test_plugins.py",
    "plan.md": "tests/htk/planning/plan/test_guide.py",
    "serving.md": "tests/htk/planning/serving/test_guide.py",
    "whatif.md": "tests/htk/whatif/test_guide.py",
}
# Blocks that other files run in the trainers and trackers themselves.
_WITH_OTHERS = {
    "LightningCapture": "tests/htk/recording/test_trainers.py",
    "TransformersCapture": "tests/htk/recording/test_trainers.py",
    "log_to(": "tests/htk/faces/report/test_experiment_log.py",
}


def _blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


BLOCKS = [
    (page.name, number, block)
    for page in PAGES
    if page.name not in ELSEWHERE
    for number, block in enumerate(_blocks(page))
    if not any(word in block for word in _WITH_OTHERS)
]


class _Timers:
    """Timers as Megatron has them: called with a name, they give one with start and stop."""

    def __call__(self, name: str, **_: Any) -> Any:
        return SimpleNamespace(start=lambda: None, stop=lambda: None)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A folder with a recording, and what the blocks take as given."""
    torch = pytest.importorskip("torch")
    for name in ("latest", "new"):
        shutil.copytree(ROOT / "htk/traces/sample", tmp_path / "runs" / name)
    sizes = "op,gpu,precision,m,n,k\nmatmul,h100,bf16,8192,4096,4096\n"
    (tmp_path / "kernels.csv").write_text(sizes, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    menu = dict(ANALYSES)
    clock = count(0, 1_000_000)  # every step takes as long: none is an outlier
    steady = SimpleNamespace(perf_counter_ns=lambda: next(clock))
    monkeypatch.setattr("htk.recording.triggers.time", steady)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(batch: Any) -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    yield {
        "loader": [torch.ones(2, 4) for _ in range(104)],
        "model": model,
        "optimizer": optimizer,
        "rank": 0,
        "timers": _Timers(),
        "train": train,
        "htk": htk,
    }
    ANALYSES.clear()  # one block makes a question of its own
    ANALYSES.update(menu)


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=lambda part: str(part)[:20])
def test_python_of_the_guide_runs(
    page: str, number: int, block: str, workplace: dict[str, Any]
) -> None:
    exec(compile(block, f"{page}[{number}]", "exec"), workplace)
    left = _LEFT.get((page, number))
    if left is not None:
        left(workplace)


def _steps(pattern: str) -> list[int]:
    """Steps of the recordings that a block wrote."""
    files = sorted(Path().glob(pattern))
    assert files, pattern
    column = htk.open(files).tables["annotations"]["step"].drop_null()
    return sorted(set(column.to_pylist()))


def _recorded(scope: dict[str, Any]) -> None:
    assert len(_steps("runs/latest/rank0.pt.trace.json.gz")) == 3


def _captured(scope: dict[str, Any]) -> None:
    assert len(_steps("runs/latest/rank00000.0.pt.trace.json.gz")) == 10


def _triggered(scope: dict[str, Any]) -> None:
    assert scope["recording"].reasons == ["a chosen step"]
    assert _steps("traces/*.json.gz") == [100, 101, 102]


def _logged(scope: dict[str, Any]) -> None:
    (rows,) = Path("rows").glob("*.jsonl")
    assert len(rows.read_text().splitlines()) >= 3 * 104  # forward, backward, optimizer


# What a block leaves behind, by page and number.
_LEFT: dict[tuple[str, int], Callable[[dict[str, Any]], None]] = {
    ("recording.md", 0): _recorded,
    ("recording.md", 1): _captured,
    ("leave_it_on.md", 0): _logged,
    ("trainers.md", 0): _triggered,
}


def test_every_page_with_python_is_run_here_or_there() -> None:
    with_python = {page.name for page in PAGES if _blocks(page)}
    assert with_python >= set(ELSEWHERE) and len(with_python - set(ELSEWHERE)) >= 5
    for page, file in ELSEWHERE.items():
        assert page in (ROOT / file).read_text(encoding="utf-8"), (page, file)
    for word, file in _WITH_OTHERS.items():
        assert word in (ROOT / file).read_text(encoding="utf-8"), (word, file)


def test_what_verify_is_shown_to_print_are_checks_of_it() -> None:
    from htk.verdicts.verify.outcome import all_checks

    text = (ROOT / "docs/verify.md").read_text(encoding="utf-8")
    *shown, last = text.partition("```text\n")[2].partition("```")[0].splitlines()
    names = {check.name: check.compared for check in all_checks()}
    assert last.startswith(f"{len(names)} checks: ")
    for line in shown:
        verdict, name, rest = re.split(r"\s{2,}", line, maxsplit=2)
        assert verdict in ("ok", "differs", "not applicable") and name in names
        said = rest.partition(" …")[0].partition("…")[0].partition(": ")[0]
        assert names[name].startswith(said), (name, names[name])
