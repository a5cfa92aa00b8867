"""Names of simulated products say the type that they are timed in, at a rate of its units."""

import pytest

from htk.base.names.kinds import kind_of
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.products import ProductTimes
from htk.recording.simulate.times import Times


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
@pytest.mark.parametrize(
    ("gpu", "library"),
    [("a100-80gb", "cublas"), ("h100", "cublas"), ("mi300x", "tensile")],
)
def test_a_product_is_named_as_its_type(gpu: str, library: str, precision: str) -> None:
    """All of them run on matrix units."""
    config = check_config(Config(gpu=gpu, precision=precision))
    name = ProductTimes(config, 1.0, 1.0).timed(512, 1024, 2048, "tn").name
    kind = kind_of(name, "kernel")
    assert (kind.family, kind.library, kind.tensor_core) == ("gemm", library, True)
    half = "bf16" in name or "nvjet_tst" in name or "BBS" in name
    assert half == (precision == "bf16")
    assert ("tf32" in name) == (precision == "tf32" and library == "cublas")


@pytest.mark.parametrize(("gpu", "family"), [("v100-32gb", "volta"), ("h100", "hopper")])
def test_single_precision_runs_on_vector_units(gpu: str, family: str) -> None:
    config = Config(gpu=gpu, precision="fp32")
    name = ProductTimes(config, 1.0, 1.0).timed(512, 1024, 2048, "tn").name
    assert name.startswith(f"{family}_sgemm_")
    assert kind_of(name, "kernel").tensor_core is False


def test_vector_units_are_as_fast_as_measured() -> None:
    """49 TFLOP/s of an H100's 67, by large products of a step; seeds draw around that."""
    rates = []
    for seed in range(6):
        config = Config(gpu="h100", precision="fp32", seed=seed)
        rates.append(2 * 8192**3 / Times(config).gemm(8192, 8192, 8192, "tn").ns / 1e3)
    assert sum(rates) / len(rates) == pytest.approx(49, rel=0.05)
