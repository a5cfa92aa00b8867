"""Which site a command uses: the file that it names, else the user's own where there is one."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import Plan, plan
from htk.planning.sites.site import PlanAtSite, Site
from htk.planning.sites.site_file import read_site

OWN_FILE = "HTK_SITE"  # environment variable that names the user's file
NONE = "none"  # in its place, or for the option: no site


@dataclass(frozen=True)
class SiteInUse:
    site: Site
    path: Path


def own_site_file() -> Path:
    """Return where a user's own site is looked for: site.toml in the folder of settings."""
    import platformdirs

    return Path(platformdirs.user_config_dir("htk", appauthor=False)) / "site.toml"


def site_in_use(named: str | None = None) -> SiteInUse | None:
    """Return the site that an option names, else the environment, else the user's own; None: no
    site."""
    chosen = named or os.environ.get(OWN_FILE)
    if chosen is None or not chosen:
        own = own_site_file()
        return SiteInUse(read_site(own), own) if own.is_file() else None
    if chosen.lower() == NONE:
        return None
    path = Path(chosen).expanduser()
    return SiteInUse(read_site(path), path)


def choose_planner(here: SiteInUse | None) -> Callable[[PlannedJob], Plan]:
    """Return what plans a job: models alone, or with a site's own figures."""
    if here is None:
        return plan
    return lambda job: PlanAtSite(job, here.site)
