"""A recording as one document to forward: HTML that stands alone, Markdown, JSON or PDF."""
