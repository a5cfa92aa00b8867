"""The dashboard: a page for each question, derived from the analyses, and a timeline."""

from htk.base.core.extras import require

require("dashboard", "the dashboard")  # before the modules that import it
