"""A site's own figures, learned from its recordings and measured steps.

In: recordings, and described jobs with their measured steps. Out: a site. Imports no face and no
what-if's edits.
"""
