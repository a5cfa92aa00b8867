"""Quantities that several questions share: calls, passes, exposure, work of operators.

In: parsed and derived tables. Out: columns and small tables. May not import analyses.
"""
