"""Every analysis as a method, for type checkers and editors: `questions.pyi` lists them.

`python -m htk.analyses.menu` writes that list. At run time a session finds an analysis by its name,
so that analyses of other packages are methods too.
"""


class Questions:
    """The methods of a session that ask a question each."""
