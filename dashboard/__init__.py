"""The dashboard: a page for each question, derived from the analyses, and a timeline.

In: recordings, what is clicked. Out: pages. May import all but faces and hta.
"""

from htk.base.core.extras import require_extra

require_extra("dashboard", "the dashboard")  # before the modules that import it
