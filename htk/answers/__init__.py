"""Questions by name: the options checked, the analysis run, its coverage beside the answer.

In: a trace and the name of an analysis. Out: `Result`, as text, HTML, figure; traces for others.
May import base, physics, quantities, parsers, traces and analyses.
"""
