"""The timeline behind every face: lanes of spans, level of detail, what is known of an event."""
