"""A server that speaks S3, on this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

App = Callable[..., Any]  # of WSGI


@contextmanager
def bucket_server(around: Callable[[App], App] = lambda app: app) -> Iterator[str]:
    """A bucket of a server that speaks S3, on this machine; `around` what it answers."""
    s3fs = pytest.importorskip("s3fs")
    s3fs.S3FileSystem.clear_instance_cache()  # of a server that is gone
    moto = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    from werkzeug.serving import make_server

    app = around(moto.DomainDispatcherApplication(moto.create_backend_app))
    server = make_server("127.0.0.1", 0, app, True, request_handler=moto.MotoRequestHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.port}"
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    settings = {**keys, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": url}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**settings, "AWS_ENDPOINT_URL_S3": url}.items():
            patch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
        client.create_bucket(Bucket="parsed")
        yield "s3://parsed"
    server.shutdown()
    s3fs.S3FileSystem.clear_instance_cache()  # whoever asks next would wait for it
