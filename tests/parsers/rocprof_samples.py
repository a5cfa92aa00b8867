"""The samples of rocprofv3: one job as JSON and as a database."""

from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "sample_traces"

JSON, DATABASE = SAMPLES / "rocprof_json/two_steps.json", SAMPLES / "rocpd/two_steps.db"
