"""The timeline: lanes of spans, drawn at the screen's level of detail."""
