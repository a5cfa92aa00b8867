"""The dashboard: a page for each question, derived from the analyses, and a timeline."""
