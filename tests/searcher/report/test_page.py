"""The page: whole, offline, safe whatever users call their things; and in a real browser."""

from __future__ import annotations

import re
import shutil
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from generated_trainer import identity
from stored import EVENTS, FINISHED, STUDY, Made, add_search, add_use, publish

from syncswitch.cli.words import OPTION_WORDS
from syncswitch.searcher.report.data import ReportData, load_report
from syncswitch.searcher.report.page import page_of
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.trial import RunEvent, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner
from tests.failing import fails
from tests.records import changed

EVIL = (
    """</script><script>document.title="taken"</script>"'><img src=x onerror=alert(1)>{{ 7*7 }}"""
)
SECTIONS = ["switches", "search", "curves", "why", "missing", "origin"]


class Elements(HTMLParser):
    """The elements of a page, and the words that people read."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._is_hidden = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._is_hidden = tag in {"script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self._is_hidden = False

    def handle_data(self, data: str) -> None:
        if not self._is_hidden:
            self.words.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def page(finished: ReportData) -> str:
    """Of a finished search."""
    return page_of(finished, OPTION_WORDS)


def test_the_page_has_every_section_with_its_numbers(page: str) -> None:
    elements = Elements(page)
    assert [section["id"] for section in elements.of("section")] == SECTIONS
    assert [one.get("role") for one in elements.of("svg")].count("img") == 3
    assert len(page) < 200_000
    for words in (
        "Train generated with BSP for the first 50 % of its 3,000 worker-steps, then with ASP",
        "trainings with BSP alone: the cost of the search",
        identity().fingerprint,
        STUDY,
        "(as the policy says)",
        "No later run with the policy is recorded yet.",
    ):
        assert words in elements.text.replace("\u00a0", " ")


def test_the_page_asks_for_nothing_from_elsewhere(page: str) -> None:
    elements = Elements(page)
    assert not [found for found in elements.found if {"src", "srcset", "data"} & set(found[1])]
    assert not elements.of("link")
    assert all(str(link["href"]).startswith("#") for link in elements.of("a"))
    (policy,) = [meta for meta in elements.of("meta") if "http-equiv" in meta]
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert not elements.of("script")


def test_a_password_is_on_no_command_line(finished: ReportData) -> None:
    secret = replace(finished, place="postgresql+psycopg://me:***@host/runs")
    lines = re.findall(r"<pre[^>]*>(.*?)</pre>", page_of(secret, OPTION_WORDS))
    assert lines
    assert not [line for line in lines if "--storage" in line]
    assert "--storage" in page_of(finished, OPTION_WORDS)


def test_a_command_has_to_be_given_again(finished: ReportData) -> None:
    search = replace(finished.search, trainer="command")
    names = ("data_set", "batch_size", "learning_rate", "momentum_after_switch")
    unknown: dict[str, Any] = dict.fromkeys(names)
    job = changed(finished.identity, **unknown, workers=1, first_protocol="first")
    page = Elements(page_of(replace(finished, search=search, identity=job), OPTION_WORDS)).text
    assert "give again what is not recorded (the command, and how its results are read):" in page
    assert "syncswitch-run generated --trainer command --total-steps 3000" in page
    assert "syncswitch-search run generated --trainer command --total-steps 3000" in page
    assert "generated, first,asp Train `generated` with BSP" in page
    assert "worker" not in page.replace("--workers", "")


def test_what_users_wrote_is_shown_and_never_interpreted(database: Database) -> None:
    job = identity(name=EVIL, first_protocol="bsp", data_set=EVIL)
    event = RunEvent("lost", 30, 1.0, EVIL, 3, None)
    runs = (*FINISHED[:-1], Made(25.0, diverged=True, events=(event, *EVENTS)))
    info = add_search(database, runs, job=job)
    publish(database, info)
    store = TrialStore(database)
    store.begin(STUDY, 99, TrialSpec(job, 12.5, seed=1), Owner.current())
    store.fail(STUDY, 99, EVIL)
    page = page_of(load_report(database, job.fingerprint), OPTION_WORDS)
    elements = Elements(page)
    assert not elements.of("script")
    assert not elements.of("img")
    assert not [found for found in elements.found if "onerror" in found[1]]
    assert " ".join(EVIL.split()) in elements.text


@pytest.mark.parametrize("library", ["jinja2", "matplotlib"])
def test_what_is_missing_is_named(
    finished: ReportData, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with fails("package-missing"):
        page_of(finished, OPTION_WORDS)


# Elements that reach beyond the page, or whose contents do not fit into them.
OVERFLOWING = """
[...document.querySelectorAll('body, body *')].filter(one => {
  if (one.closest('svg') && one.tagName !== 'svg') return false;
  const box = one.getBoundingClientRect(), width = document.documentElement.clientWidth;
  return box.left < 0 || box.right > width + 0.5
    || (one.tagName !== 'svg' && one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0);
}).map(one => one.outerHTML.slice(0, 100))
"""
# Words that reach beyond their figure.
CLIPPED = """
[...document.querySelectorAll('.figures svg')].flatMap(figure => {
  const box = figure.getBoundingClientRect();
  return [...figure.querySelectorAll('text')].filter(text => {
    const one = text.getBoundingClientRect();
    return one.top < box.top - 3 || one.bottom > box.bottom + 3
      || one.left < box.left - 3 || one.right > box.right + 3;
  }).map(text => text.textContent);
})
"""
WIDTHS = (390, 800, 1200, 1600)


def failing(seed: int) -> tuple[Made, GuardOutcome]:
    """A later run; now and then all of its switches failed, and it collapsed."""
    if seed % 10 != 1:
        return Made(50.0, 0.95 + seed / 5000), GuardOutcome(50.0)
    failed = tuple(FailedSwitch(percent, "low", 100, 9.0, 2.0) for percent in (50.0, 75.0))
    return Made(100.0, 0.15), GuardOutcome(100.0, failed)


def page_with(database: Database, folder: Path, later_runs: int) -> Path:
    """A page with every section that there is, and text that would run if it could."""
    job = identity(name=EVIL)
    info = add_search(database, [*FINISHED, Made(12.5, 0.15)], job=job, strategy="adaptive")
    if later_runs:
        publish(database, info)
        policy = publish(database, replace(info, study="a-study-of-a-long-name-" * 4))
        for seed in range(later_runs):
            made, guard = failing(seed)
            add_use(database, policy, seed, made, job=job, guard=guard)
    path = folder / f"report-{later_runs}.html"
    path.write_text(page_of(load_report(database, job.fingerprint), OPTION_WORDS))
    return path


@pytest.mark.slow
def test_the_page_is_drawn_without_error_request_or_overflow(
    browser: Any, sqlite_template: Path, tmp_path: Path
) -> None:
    def asked(script: str) -> Any:
        return browser.execute_script(f"return {script.strip()}")

    drawings = "[...document.querySelectorAll('.figures svg')]"
    for runs, figures in ((0, 3), (1, 4), (3, 4), (30, 4)):
        path = tmp_path / f"{runs}.db"
        shutil.copyfile(sqlite_template, path)
        with open_database(f"sqlite:///{path}", create=False) as database:
            page = page_with(database, tmp_path, runs)
        for width in WIDTHS:
            metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            browser.get(page.as_uri())
            until = time.monotonic() + 20
            while asked("document.readyState") != "complete" and time.monotonic() < until:
                time.sleep(0.05)
            assert asked(f"{drawings}.length") == figures
            heights = f"{drawings}.map(svg => svg.getBoundingClientRect().height)"
            assert asked(f"Math.min(...{heights})") > 99
            assert asked(CLIPPED) == []
            assert asked(OVERFLOWING) == []
            assert asked("document.documentElement.scrollWidth") <= width
            assert asked("performance.getEntriesByType('resource').map(e => e.name)") == []
            assert asked("document.title").endswith(": when to switch")
            assert asked("document.querySelector('h1').textContent").startswith(EVIL)
    assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []
