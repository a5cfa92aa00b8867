"""A bucket in which others may write: what they put there fails alone, whoever reads it."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.bucket_server import App, bucket_server
from tests.kineto_file import kernel, of_rank, write


class Trap:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


class Changing:
    """A bucket that answers another object's bytes for one of them, once it was described."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith("changed_rank_3"):
            for name in ("PATH_INFO", "RAW_URI", "REQUEST_URI"):
                environ[name] = environ.get(name, "").replace("changed_rank_3", "trap_rank_2")
        return self._app(environ, start_response)


@pytest.mark.parametrize(
    "on", ["threads", "processes", pytest.param("ray", marks=pytest.mark.nightly)]
)
def test_hostile_objects_fail_alone_wherever_they_are_read(on: str, tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    trap = pickle.dumps({"entries": [], "pg_config": Trap(sprung), "version": "2.10"}, 2)
    good = write(tmp_path / "rank0.json", kernel("gemm", 1, 7), **of_rank(0, 2)).read_bytes()
    absurd = of_rank(1)
    absurd["distributedInfo"] |= {"world_size": 2**63 - 1}
    objects = {
        "rank0.json": good,
        "rank1.json": write(tmp_path / "1", kernel("gemm", 1, 5), **absurd).read_bytes(),
        "trap_rank_2": trap,
        "changed_rank_3": good.replace(b'"rank": 0', b'"rank": 3'),
    }
    with bucket_server(Changing) as address:
        import s3fs

        bucket = s3fs.S3FileSystem()
        for name, content in objects.items():
            bucket.pipe(f"{address}/hostile/{name}", content)
        trace = open_trace(f"{address}/hostile/", OpenOptions(on=on))
        assert trace.ranks == [0, 1]
        assert ask_trace(trace, "kernel_top").to_pylist()[0]["total_ns"] == 12_000
        trace.work.close()
    assert {name.rsplit("/", 1)[-1] for name, _ in trace.failed} == {
        "trap_rank_2",
        "changed_rank_3",
    }
    assert trace.tables["ranks"]["world_size"].to_pylist() == [2, None]
    assert not sprung.exists()
