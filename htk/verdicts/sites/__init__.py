"""A site's own figures: learned from its recordings and measured steps, kept in one TOML file.

In: recordings, and described jobs with their measured steps. Out: a site, and plans by it. Imports
no face and no what-if's edits.
"""
