"""Traces on their way out: datasets, merged and overlaid traces, trims, scrubbed copies.

In: a trace or its files. Out: files. May not import faces.
"""
