"""Colours and type of every face: report, dashboard, notebook, figures. One meaning each."""

# Of what GPUs and hosts do. A wait is communication hatched; what was not recorded is a hatched
# outline on `unrecorded`; `alert` is for what wants action, alone.
LIGHT = {
    "compute": "#2F7DE1",
    "comm": "#D9822B",
    "wait": "#F0C48F",  # the stripes of waiting
    "overlapped": "#F6DFC4",  # communication behind compute
    "memory": "#16826B",
    "launch": "#7A4FB5",
    "cpu": "#6B7788",
    "idle": "#B6BFCB",
    "undetermined": "#B3A58A",  # of communication: wait or transfer
    "unrecorded": "#ECEFF3",
    "ground": "#F6F7F9",
    "panel": "#FFFFFF",
    "line": "#E4E7EC",
    "ink": "#16202E",
    "mute": "#55627A",
    "accent": "#1259C4",
    "alert": "#C4320A",
    "good": "#15754A",
}
DARK = {
    "compute": "#4C93F0",
    "comm": "#E69A4A",
    "wait": "#7A5A32",
    "overlapped": "#54412B",
    "memory": "#2AA68B",
    "launch": "#B894EE",
    "cpu": "#8793A6",
    "idle": "#475364",
    "undetermined": "#8C8069",
    "unrecorded": "#1D2733",
    "ground": "#0E141C",
    "panel": "#161E29",
    "line": "#263241",
    "ink": "#E6EBF2",
    "mute": "#9CA9BA",
    "accent": "#6AA6FF",
    "alert": "#FF8A65",
    "good": "#4CC38A",
}
# Things without a meaning of their own, such as ranks: none is a colour that has one.
SERIES = ("#4B5FD1", "#B5179E", "#2B8FB0", "#7A9E1F", "#C2405A", "#8A5A00", "#0F9D8A", "#6B7788")
SERIES_DARK = (
    "#8E9BFF", "#E879C6", "#6FC3E0", "#B4D45A", "#FF8FA3", "#D6A65B", "#5FD6C4", "#A3AFC0"
)  # fmt: skip
FONT = (
    'Inter, "SF Pro Text", "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", system-ui, '
    "sans-serif"
)
MONO = 'ui-monospace, "SF Mono", "JetBrains Mono", Menlo, "Liberation Mono", monospace'


def series_colour(number: int, *, dark: bool) -> str:
    """Return the colour of the number-th thing without a meaning of its own."""
    colours = SERIES_DARK if dark else SERIES
    return colours[number % len(colours)]


def css_variables(*, dark: bool) -> str:
    """Return the colours as declarations of CSS variables."""
    colours = DARK if dark else LIGHT
    return " ".join(f"--{name}: {value.lower()};" for name, value in colours.items())
