"""The report: in a real browser from disk, and in its other forms."""

import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import htk
from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.base.core.engine import load_core
from htk.base.errors import UsageError
from htk.faces.cli.main import run_command_line
from htk.faces.report import pdf
from htk.faces.report.content import Report, form_of, gather_report
from htk.faces.report.lanes import CELLS, UNRECORDED, select_lanes
from htk.faces.report.page import render_report_page
from htk.faces.report.text import render_report_markdown, to_json
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.conftest import CHROMIUM, new_tab
from tests.kineto_file import kernel, launch, of_rank, op, step, write
from tests.server_recording import write_server

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; set HTK_CHROMIUM")
EVIL = "</script><img src=x onerror=alert(1)>`|`"


@pytest.fixture(scope="module")
def sample() -> Report:
    return gather_report(open_trace("sample"), title="sample", command="htk report sample")


def opened(browser: Any, file: Path, do: Any, width: int = 1300) -> Any:
    """What `do` finds on a page opened from disk; nothing may be asked for or complained of."""
    said: list[str] = []
    tab = new_tab(browser, viewport={"width": width, "height": 900})
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: said.append(request.url))
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-ready]")
    found = do(tab)
    tab.close()
    assert said == [file.as_uri()]
    return found


def test_it_opens_from_disk_without_a_request(browser: Any, sample: Report, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_report_page(sample), encoding="utf-8")
    assert file.stat().st_size < 6e6

    def look(tab: Any) -> dict[str, Any]:
        kernels = tab.locator("article", has_text="Which kernels cost most").locator(".htk-t")
        first = kernels.locator("tbody tr").first.inner_text()
        kernels.locator("th", has_text="count").click()
        return {
            "plots": tab.locator(".plot .main-svg").count() > 0,
            "empty": tab.evaluate(
                "[...document.querySelectorAll('.plot')]"
                ".filter(place => !place.querySelector('svg')).length"
            ),
            "reordered": kernels.locator("tbody tr").first.inner_text() != first,
            "painted": tab.evaluate(
                "(() => { const c = document.getElementById('lanes'); return new Set(c.getContext"
                "('2d').getImageData(0, 0, c.width, c.height).data).size })()"
            ),
            "wider": tab.evaluate("document.documentElement.scrollWidth > innerWidth"),
        }

    found = opened(browser, file, look)
    assert found.pop("painted") > 10
    assert found == {"plots": True, "empty": 0, "reordered": True, "wider": False}


@pytest.mark.parametrize(
    ("width", "expected"), [(393, [["0", "1"], "rank"]), (1300, [["rank 0", "rank 1"], None])]
)
def test_ranks_below_bars_fit_a_phone(
    browser: Any, sample: Report, tmp_path: Path, width: int, expected: list[Any]
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_report_page(sample), encoding="utf-8")

    def look(tab: Any) -> Any:
        return tab.evaluate(
            "(() => { const plot = [...document.querySelectorAll('.plot')].find(place => place"
            ".data.some(trace => Array.isArray(trace.x) && trace.x[0] === 'rank 0'));"
            "const words = [...plot.querySelectorAll('.xtick')].map(tick => tick.textContent);"
            "return [words, plot.querySelector('.xtitle')?.textContent ?? null] })()"
        )

    assert opened(browser, file, look, width) == expected


def test_what_a_trace_says_is_never_run(browser: Any, tmp_path: Path) -> None:
    write(tmp_path / "t.json", step(0, 0, 50), op(EVIL, 1, 40), launch(1, 2), kernel(EVIL, 5, 9, 1))
    report = gather_report(open_trace(tmp_path / "t.json"), title=EVIL, command=EVIL)
    file = tmp_path / "report.html"
    file.write_text(render_report_page(report), encoding="utf-8")
    assert opened(browser, file, lambda tab: tab.locator("img").count()) == 0
    assert "<img" not in render_report_page(report)


def test_a_cell_of_the_timeline_holds_what_runs_in_its_middle(tmp_path: Path) -> None:
    write(
        tmp_path / "t.json",
        step(0, 0, 2 * CELLS), launch(1, 1), launch(2, 2), launch(3, 3),
        kernel("gemm", 10, CELLS - 10, 1),
        kernel("ncclDevKernel_AllReduce_RING_LL", CELLS, CELLS / 2, 2),
        kernel("last", 2 * CELLS, 10, 3),
    )  # fmt: skip
    found = select_lanes(open_trace(tmp_path / "t.json"))
    assert found is not None and found.lanes == ["rank 0 · stream 7"]
    assert found.length_ns == (2 * CELLS) * 1000  # from 10 us to 10 us after 2·CELLS
    row = [found.names[k] if k >= 0 else "" for k in found.name_codes[0]]
    middle = CELLS // 2 - 5  # 10 us earlier than half of the time
    assert row[:middle] == ["gemm"] * middle
    assert row[middle + 2] == "AllReduce_RING_LL" and row[-1] == "last"
    assert row[int(CELLS * 0.8)] == ""
    assert np.mean(found.busy[0]) == pytest.approx(255 * (1.5 * CELLS) / (2 * CELLS), rel=0.02)


def test_what_a_cut_file_lacks_is_not_idle(tmp_path: Path) -> None:
    """Rank 0 works from 0 to 100 and from 900 to 1000 us, rank 1's file ends at 250 us."""
    for rank, work in ((0, (0, 900)), (1, (0, 150))):
        events = [kernel("gemm", at, 100) for at in work]
        write(tmp_path / f"rank{rank}.json", *events, **of_rank(rank, 2))
    cells = select_lanes(open_trace(tmp_path))
    assert cells is not None and cells.lanes == ["rank 0 · stream 7", "rank 1 · stream 7"]
    whole, cut = cells.name_codes
    assert (whole == UNRECORDED).sum() == 0 and (whole == -1).sum() == pytest.approx(0.8 * CELLS, 2)
    assert (cut == UNRECORDED).tolist() == [False] * (CELLS // 4) + [True] * (CELLS - CELLS // 4)
    assert (cut[: CELLS // 4] == -1).sum() == pytest.approx(0.05 * CELLS, 2)
    report = gather_report(open_trace(tmp_path), title="cut", command="htk report")
    assert "Hatched: not recorded." in render_report_page(report)


def test_a_hatched_cell_says_so(browser: Any, tmp_path: Path) -> None:
    for rank, work in ((0, (0, 900)), (1, (0, 150))):
        events = [kernel("gemm", at, 100) for at in work]
        write(tmp_path / f"rank{rank}.json", *events, **of_rank(rank, 2))
    report = gather_report(open_trace(tmp_path), title="cut", command="htk report")
    file = tmp_path / "report.html"
    file.write_text(render_report_page(report), encoding="utf-8")

    def look(tab: Any) -> list[str]:
        said = []
        width = tab.evaluate("document.getElementById('lanes').clientWidth")
        for part, lane in ((0.05, 1), (0.22, 1), (0.6, 1), (0.6, 0)):
            place = {"x": 132 + part * (width - 132), "y": 10 + 29 * lane}
            tab.locator("#lanes").hover(position=place)
            said.append(tab.locator("#lane-says").inner_text())
        return said

    busy, second, lost, idle = opened(browser, file, look)
    assert "gemm" in busy and "gemm" in second
    assert lost == "rank 1 · stream 7: not recorded then" and "nothing" in idle


def test_markdown_for_a_ticket(sample: Report) -> None:
    text = render_report_markdown(sample)
    assert text.startswith("## sample\n\n**2 ranks, step ")
    assert "| compute |" in text and "<details><summary>Which kernels cost most" in text
    assert "`htk report sample`" in text
    assert len(text) < 65_536, "what a comment on GitHub may hold"
    first = next(line for line in text.splitlines() if line.startswith("| 0 | 0 | 10 |"))
    assert first.split("|")[4].strip().endswith(" µs"), "times since the recording began"


def test_json_for_machines(sample: Report) -> None:
    told = json.loads(to_json(sample))
    assert told["schema"] == "htk.report/1"
    assert set(told) == {
        "schema", "title", "command", "created", "versions", "devices", "span_ns", "verdict",
        "coverage", "whatif", "sections", "unanswered",
    }  # fmt: skip
    assert sum(share["pct"] for share in told["verdict"]["shares"]) == pytest.approx(100)
    names = [a["analysis"] for section in told["sections"] for a in section["answers"]]
    assert "kernel_top" in names and told["versions"]["htk"]
    assert not told["unanswered"]


def test_the_map_of_whatifs(tmp_path: Path) -> None:
    config = Config(model="gpt3-126m", layers=2, gpus_per_node=2, steps=4, noise=0.0, stacks=False)
    simulate_job(config, tmp_path)
    report = gather_report(open_trace(tmp_path), title="job", command="htk report job")
    unanswered = json.loads(to_json(report))["unanswered"]
    assert {u["analysis"] for u in unanswered} >= {"module_breakdown"}
    assert report.whatif.map is not None, report.whatif.why
    text = render_report_page(report)
    assert text.count('<td class="won') + text.count('<td class="lost') > 5
    assert "Best case of each remedy alone" in text


def test_a_server_has_its_own_changes_and_one_gpu_for_two_files(tmp_path: Path) -> None:
    """Two recordings of a rank, a minute apart, are of one GPU."""
    write_server(tmp_path / "later.json")
    earlier = json.loads((tmp_path / "later.json").read_text())
    for event in earlier["traceEvents"]:
        event["ts"] -= 60_000_000
    (tmp_path / "earlier.json").write_text(json.dumps(earlier))
    report = gather_report(open_trace(tmp_path), title="server", command="htk report server")
    assert report.devices == "1 × NVIDIA A100-SXM4-80GB"
    text = render_report_markdown(report)
    assert "| serving requests=4x |" in text and "What-if map" not in text
    assert "of an iteration): " in text
    assert "Batch × sharding" not in render_report_page(report)


def test_a_recording_without_gpu_work(tmp_path: Path) -> None:
    write(tmp_path / "t.json", step(0, 0, 50), op("aten::mm", 1, 40))
    report = gather_report(
        open_trace(tmp_path / "t.json"), title="cpu", command="htk report t.json"
    )
    assert report.lanes is None and "No GPU work was recorded" in render_report_page(report)
    assert "No GPU work was recorded" in render_report_markdown(report)


def test_a_job_that_logged_its_operations_is_not_called_empty() -> None:
    """What stragglers cost stands at the head; nothing of a profile that was never recorded."""
    rows = Path(__file__).parents[4] / "sample_traces/operation_rows/slow_worker.parquet"
    report = gather_report(open_trace(rows), title="job", command="")
    text = render_report_page(report)
    job = ask_trace(open_trace(rows), "straggler_slowdown").to_pylist()[0]
    assert f"<b>{job['slowdown']:.2f}x</b><span>slowdown</span>" in text
    assert "<b>3 × 2</b><span>workers</span>" in text
    for wrong in ("No GPU work was recorded.", "<b>0 ns</b>", "No prediction", "What if"):
        assert wrong not in text.split("What this rests on")[0], wrong


def test_the_form_is_told_by_the_ending() -> None:
    assert [form_of(None, o) for o in (None, "a.md", "b.json", "c.pdf")] == [
        "html", "md", "json", "pdf",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="not a form of report"):
        form_of(None, "report.docx")


@needs_chromium
def test_pdf(tmp_path: Path) -> None:
    assert run_command_line(["report", "sample", "--no-whatif", "-o", str(tmp_path / "r.pdf")]) == 0
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF-")


def test_pdf_without_chromium_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTK_CHROMIUM", "/nowhere/chromium")
    with pytest.raises(UsageError, match="PDF needs Chromium"):
        pdf.find_chromium()


def test_from_a_notebook(tmp_path: Path) -> None:
    made = htk.open("sample").report(tmp_path / "r.html", whatif=False)
    assert made.read_text().startswith("<!doctype html>")


def test_rows_of_a_job_have_a_section_of_their_own(sample: Report) -> None:
    rows = Path(__file__).parents[4] / "sample_traces/operation_rows/slow_worker.parquet"
    report = gather_report(open_trace(rows), title="job", command="htk report rows", whatif=False)
    assert [section.id for section in report.sections][-1] == "job"
    assert all(answered.result is not None for answered in report.sections[-1].answers)
    assert "Stragglers: 1.21x" in report.verdict.headline
    for text in (render_report_markdown(report), render_report_page(report), to_json(report)):
        assert "dp rank 1, stage 1" in text
    assert "job" not in [section.id for section in sample.sections]


@pytest.mark.skipif(
    load_core() is None or not sys.platform.startswith("linux"),
    reason="arrays lie in files on Linux, with the compiled core",
)
def test_a_report_made_in_little_memory_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays of more than a page lie in files; so do joined tables."""
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("htk.base.io.spill._SMALLEST_BYTES", 4096)
    simulate_job(Config(layers=2, nodes=2, gpus_per_node=2, stagger_us=500.0), tmp_path / "job")
    gc.collect()  # what earlier tests left in files would go meanwhile
    before = load_core().held()[1]  # type: ignore[union-attr]
    in_files = []

    def asked(trace: Trace, name: str, **options: str) -> Result:
        answer = ask_trace(trace, name, **options)
        in_files.append(load_core().held()[1] - before)  # type: ignore[union-attr]
        return answer

    monkeypatch.setattr("htk.faces.report.content.ask_trace", asked)
    reports = []
    for memory in (None, 1):
        trace = open_trace(tmp_path / "job", OpenOptions(memory_bytes=memory))
        report = to_json(gather_report(trace, title="job", command="htk report job", whatif=False))
        reports.append(json.loads(report) | {"created": ""})
        assert bool(max(in_files)) == (memory is not None)
    assert reports[0] == reports[1]
    assert len(reports[0]["verdict"]["causes"]) > 0
