"""Where operators, modules, ranges and Python spend time."""
