"""A job in a bucket that refuses some requests, with a damaged file: parsed by several processes
into a store in the bucket, which then answers as the files on this machine do, bit for bit."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask
from htk.errors import TraceError
from htk.overview.summary import result, verdict
from htk.simulate.config import Config, checked
from htk.simulate.job import simulate
from htk.trace.opening import open_trace
from tests.bucket_server import App, bucket_server

JOB = {
    "model": "tiny", "layers": 1, "hidden": 64, "heads": 2, "ffn": 128, "vocab": 100, "seq": 32,
    "gpus_per_node": 8, "strategy": "hybrid_shard", "steps": 2, "clock_offset_us": 300.0,
}  # fmt: skip
SHARES = 3
REFUSED = 7  # every so manieth request
SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
QUESTIONS = (
    "time_breakdown", "kernel_top", "kernel_families", "comm_wait", "comm_summary", "stragglers",
    "clock_alignment", "critical_path",
)  # fmt: skip


@contextmanager
def throttled() -> Iterator[tuple[str, list[str]]]:
    """A bucket, and the requests that it refused."""
    refused: list[str] = []
    requests = count(1)

    def around(app: App) -> App:
        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            if next(requests) % REFUSED:
                return app(environ, start_response)
            refused.append(environ["REQUEST_METHOD"])
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            length = ("Content-Length", str(len(SLOW_DOWN)))
            start_response("503 Slow Down", [("Content-Type", "application/xml"), length])
            return [SLOW_DOWN]

        return answer

    with bucket_server(around) as address:
        yield address, refused


def answers(path: str | Path) -> dict[str, Any]:
    trace = open_trace(path)
    tables = {name: ask(trace, name) for name in QUESTIONS}
    found: dict[str, Any] = {
        name: (answer.to_pylist(), answer.table.schema, dict(answer.coverage))
        for name, answer in tables.items()
    }
    return found | {"ranks": trace.ranks, "summary": result(verdict(trace)).to_pylist()}


@pytest.mark.parametrize("nodes", [3, pytest.param(128, marks=pytest.mark.nightly)])
def test_a_throttled_bucket_with_a_damaged_file_answers_as_the_files_do(
    nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache, ranks = tmp_path / "run", tmp_path / "cache", 8 * nodes
    monkeypatch.setenv("HTK_CACHE_DIR", str(cache))
    simulate(checked(Config(nodes=nodes, **JOB)), folder)  # type: ignore[arg-type]
    (folder / "truth.json").unlink(missing_ok=True)
    damaged = folder / "rank5.pt.trace.json.gz"
    with throttled() as (address, refused):
        import boto3

        client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
        for file in folder.iterdir():
            body = file.read_bytes()
            if file == damaged:  # its header says that it is packed
                body = body[:20] + b"not what it was"
            client.put_object(Bucket="parsed", Key=f"run/{file.name}", Body=body)
        before = len(refused)
        outputs = mapped(f"{address}/run", f"{address}/store", tmp_path)
        stored = [int(re.match(r"(\d+) files stored", out)[1]) for _, out, _ in outputs]  # type: ignore[index]
        assert sum(stored) == ranks - 1 and min(stored) > 0
        assert sorted(code for code, _, _ in outputs) == [0] * (SHARES - 1) + [TraceError.exit_code]
        assert sum("rank5.pt" in err for _, _, err in outputs) == 1
        assert {"GET", "PUT"} <= set(refused[before:]), "reading and writing were refused"
        of_bucket = answers(f"{address}/store")
    damaged.unlink()
    shutil.rmtree(cache)
    of_files = answers(folder)
    assert of_files["ranks"] == [rank for rank in range(ranks) if rank != 5]
    assert of_bucket == of_files


def mapped(run: str, store: str, folder: Path) -> list[tuple[int, str, str]]:
    """Parse a job into a store, by as many processes as there are shares, each of a machine of its
    own; return how each ended and what it said."""
    running = []
    for share in range(1, SHARES + 1):
        words = ["map", run, "--shard", f"{share}/{SHARES}", "--store", store]
        environment = os.environ | {"HTK_CACHE_DIR": str(folder / f"cache-{share}")}
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "htk", *words],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    ended = [process.communicate() for process in running]
    return [(p.returncode, *said) for p, said in zip(running, ended, strict=True)]
