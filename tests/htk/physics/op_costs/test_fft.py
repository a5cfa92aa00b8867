"""Fourier transforms."""

from tests.htk.physics.op_costs.operator_costs import FLOAT, of


def test_fourier_transforms() -> None:
    """8 rows of 64: 5·N·log2(64) for complex numbers, half of it for real ones."""
    whole = of(
        "aten::_fft_c2c", [[8, 64]], types=["c10::complex<float>"], values=["", "[1]", "0", "True"]
    )
    assert (whole.flops, whole.bytes) == (5 * 512 * 6, 2 * 512 * 8)
    both = of(
        "aten::_fft_c2c",
        [[8, 64]],
        types=["c10::complex<float>"],
        values=["", "[0, 1]", "0", "True"],
    )
    assert both.flops == 5 * 512 * 9
    real = of("aten::_fft_r2c", [[8, 64]], types=[FLOAT], values=["", "[1]", "0", "True"])
    assert (real.flops, real.bytes) == (2.5 * 512 * 6, 4 * 512 + 8 * 8 * 33)
    back = of(
        "aten::_fft_c2r", [[8, 33]], types=["c10::complex<float>"], values=["", "[1]", "0", "64"]
    )
    assert (back.flops, back.bytes) == (2.5 * 512 * 6, 8 * 8 * 33 + 4 * 512)
