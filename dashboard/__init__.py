"""The dashboard: a page for each question, derived from the analyses, and a timeline.

In: recordings, what is clicked. Out: pages. May import all but faces and hta.
"""

from htk.base.core.extras import require

require("dashboard", "the dashboard")  # before the modules that import it
