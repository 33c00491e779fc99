"""Makes the test tools of this folder importable, and gives tests a database of their own."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from command_line import OTHER, QUICK, Invoke, copy_database, database_file
from search_program import generated_job

from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.search.optuna_storage import open_storage
from syncswitch.storage.database.defaults import ENVIRONMENT_VARIABLE
from tests.conftest import Once


@pytest.fixture(scope="session")
def search_template(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with our tables and Optuna's, to be copied."""
    path = tmp_path_factory.mktemp("search-template") / "search.db"
    shutil.copyfile(sqlite_template, path)
    storage = open_storage(f"sqlite:///{path}")
    storage.remove_session()
    storage.engine.dispose()
    return path


@pytest.fixture
def url(folder: Path, has_tables: bool, request: pytest.FixtureRequest) -> str:
    """URL of a database that does not exist yet, or (see `has_tables`) that no search has used."""
    path = folder / "search.db"
    if has_tables:
        shutil.copyfile(request.getfixturevalue("search_template"), path)
    return f"sqlite:///{path}"


@pytest.fixture
def invoke(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs the program in this process on a database of its own."""
    monkeypatch.setenv("SYNCSWITCH_CHECKPOINTS", str(tmp_path / "checkpoints"))
    monkeypatch.setattr(LocalTrainer, "job", generated_job)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, url)
    return Invoke()


SEARCHES = {
    "one_version": [QUICK],
    "two_versions": [QUICK, OTHER],
    "two_clusters": [QUICK, [*QUICK, "--workers", "8"]],
}


@pytest.fixture(scope="session")
def searched(once: Once) -> Callable[[str, str], None]:
    """Fills a database with what real searches found; each is made once, and then copied."""

    def fill(name: str, url: str) -> None:
        made = once(f"searched-{name}", partial(_search, SEARCHES[name]))
        shutil.copyfile(made / "search.db", database_file(url))

    return fill


def _search(options_of_each: list[list[str]], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "written.db"
        for options in options_of_each:
            command = ["run", "generated", *options, "--storage", f"sqlite:///{path}"]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(LocalTrainer, "job", generated_job)
                Invoke().succeeds(*command)
        copy_database(path, folder / "search.db")


@pytest.fixture
def one_version(searched: Callable[[str, str], None], url: str) -> None:
    """A workload with one policy."""
    searched("one_version", url)


@pytest.fixture
def two_versions(searched: Callable[[str, str], None], url: str) -> None:
    """A workload with two versions of its policy."""
    searched("two_versions", url)


@pytest.fixture
def two_clusters(searched: Callable[[str, str], None], url: str) -> None:
    """A workload with a policy for 4 workers, and a newer one for 8."""
    searched("two_clusters", url)


CHROMIUM = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    " --disable-background-networking --disable-component-update --window-size=1600,2000"
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A real Chromium with a profile of its own."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no browser here; on Debian: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (*CHROMIUM.split(), f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()
