"""Every answer worked out from a recording by plain loops."""
