"""The atlas of measured kernels: distilled from public measurements, and held to those left out.

    python -m bench.atlas WHEEL

WHEEL is the folder `aiconfigurator_core` of the unpacked wheel of aiconfigurator-core 0.12.0. One
run writes htk/physics/kernel_atlas.zip and docs/kernel_scorecard.md.
"""
