"""Questions about kernels."""
