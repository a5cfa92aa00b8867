"""Every analysis as a method, for type checkers and editors: `questions.pyi` lists them.

`python -m htk.menu` writes that list from the menu. When it runs, a session finds the analysis by
name, so that those of other packages are methods too.
"""


class Questions:
    """The methods of a session that ask a question each."""
