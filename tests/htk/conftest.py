"""A bucket for whatever keeps things in one."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of a server that speaks S3, on this machine."""
    s3fs = pytest.importorskip("s3fs")
    s3fs.S3FileSystem.clear_instance_cache()  # of a server that is gone
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    settings = {**keys, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": url}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**settings, "AWS_ENDPOINT_URL_S3": url}.items():
            patch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
        client.create_bucket(Bucket="parsed")
        yield "s3://parsed"
    server.stop()
