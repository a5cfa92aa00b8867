"""A small set of traces that comes with the package: `htk summary sample`."""
