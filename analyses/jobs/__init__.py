"""Whole jobs from operation-level rows: what stragglers cost, and why."""
