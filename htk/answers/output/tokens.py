"""Colours and type of every face: report, dashboard, notebook, figures. One meaning each."""

# Of what GPUs and hosts do. A wait is communication hatched; what was not recorded is a hatched
# outline on `unrecorded`; `alert` is for what wants action and what costs, alone, `good` for what
# saves, `accent` for links, scales and predictions. Names get theirs in figure_colours.py.
LIGHT = {
    "compute": "#2F7DE1",
    "comm": "#D9822B",
    "wait": "#F0C48F",  # the stripes of waiting
    "overlapped": "#F6DFC4",  # communication behind compute
    "memory": "#16826B",
    "launch": "#7A4FB5",
    "cpu": "#6B7788",
    "idle": "#B6BFCB",
    "gpu": "#34558B",  # any activity of a GPU, whatever it is
    "undetermined": "#B3A58A",  # what cannot be told, such as wait or transfer
    "unrecorded": "#ECEFF3",
    "ground": "#F6F7F9",
    "panel": "#FFFFFF",
    "line": "#E4E7EC",
    "ink": "#16202E",
    "mute": "#55627A",
    "accent": "#1259C4",
    "alert": "#C4320A",
    "good": "#15754A",
    "warning": "#B58900",  # of what an answer rests on
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
    "gpu": "#7C9BD1",
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
    "warning": "#E3C04B",
}
# Things without a meaning of their own, such as ranks: none is a colour that has one.
SERIES = ("#4B5FD1", "#B5179E", "#2B8FB0", "#7A9E1F", "#C2405A", "#8A5A00", "#C67BAD", "#6B2737")
SERIES_DARK = (
    "#8E9BFF", "#E879C6", "#6FC3E0", "#B4D45A", "#FF8FA3", "#CDDFB4", "#A65B7A", "#F4E9C8"
)  # fmt: skip
FONT = (
    'Inter, "SF Pro Text", "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", system-ui, '
    "sans-serif"
)
MONO = 'ui-monospace, "SF Mono", "JetBrains Mono", Menlo, "Liberation Mono", monospace'


PALEST = 3  # shades of idle beside its own colour


def palette_of(dark: bool) -> dict[str, str]:
    """Return the colours by what they mean."""
    return DARK if dark else LIGHT


def series_colour(number: int, *, dark: bool) -> str:
    """Return the colour of the number-th thing without a meaning; pale from the ninth."""
    colours = SERIES_DARK if dark else SERIES
    colour = colours[number % len(colours)]
    pale = number // len(colours) % 2
    return blend_colour(colour, palette_of(dark)["panel"], 0.5) if pale else colour


def blend_colour(colour: str, paper: str, share: float) -> str:
    """Return so much of a colour on a paper."""
    pairs = [(int(colour[k : k + 2], 16), int(paper[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(c * share + p * (1 - share)):02X}" for c, p in pairs)


def css_classes() -> str:
    """Return the fills of shares as classes: of a meaning k-compute, striped k-wait, hatched
    k-unrecorded."""
    plain = (
        "compute", "comm", "overlapped", "memory", "launch", "cpu", "idle", "gpu", "undetermined",
        "accent", "alert", "good",
    )  # fmt: skip
    own = " ".join(f".k-{name} {{ background: var(--{name}); }}" for name in plain)
    wait = "repeating-linear-gradient(135deg, var(--comm) 0 3px, var(--wait) 3px 7px)"
    lost = "repeating-linear-gradient(135deg, var(--idle) 0 1px, var(--unrecorded) 1px 6px)"
    pale = " ".join(
        f".k-idle.k-pale-{k} {{ background: color-mix(in srgb, var(--idle) {100 - 22 * k}%, "
        "var(--panel)); }"
        for k in range(1, PALEST + 1)
    )
    return f"{own} {pale} .k-wait {{ background: {wait}; }} .k-unrecorded {{ background: {lost}; }}"


def css_variables(*, dark: bool) -> str:
    """Return the colours as declarations of CSS variables."""
    colours = palette_of(dark)
    return " ".join(f"--{name}: {value.lower()};" for name, value in colours.items())
