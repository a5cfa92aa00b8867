"""What a package adds to htk: a format, a question, an edit."""
