"""The page in a real browser: no error, no request, and room on a telephone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from generated_trainer import identity
from stored import EVENTS, FINISHED, Made, add_search, publish

from syncswitch.searcher.report import load_report, page_of
from syncswitch.searcher.report.comparison.page import comparison_page_of
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.job import RunConditions

NAME = "</script><script>document.title='taken'</script>\"<img src=x onerror=alert(1)>"
FIGURES = 9
# Titles of axes that reach beyond their figure.
CLIPPED = """
[...document.querySelectorAll('[data-figure]')].flatMap(figure => {
  const box = figure.getBoundingClientRect();
  return [...figure.querySelectorAll('[class*="title"] text')].filter(text => {
    const one = text.getBoundingClientRect();
    return one.top < box.top - 1 || one.bottom > box.bottom + 1
      || one.left < box.left - 1 || one.right > box.right + 1;
  }).map(text => text.textContent);
})
"""
# Tables that have to be moved to be read.
CUT = """
[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth + 1)
  .map(one => one.ariaLabel)
"""


@pytest.fixture
def page(sqlite_url: str, our_tables: None, tmp_path: Path) -> Path:
    """With every section, and text that would run if it could."""
    job = identity(name=NAME)
    disturbed = Made(50.0, conditions=RunConditions(online="elastic"), events=EVENTS)
    with open_database(sqlite_url, create=False) as database:
        publish(database, add_search(database, FINISHED, job=job, strategy="adaptive"))
        add_search(database, [disturbed] * 8, job=job, study="disturbed", strategy="comparison")
        reports = [load_report(database, job.fingerprint, study=one) for one in (None, "disturbed")]
    path = tmp_path / "report.html"
    path.write_text(page_of(reports[0]))
    (tmp_path / "comparison.html").write_text(comparison_page_of(reports))
    return path


@pytest.mark.slow
def test_the_page_is_drawn_without_error_request_or_sideways_scrolling(
    browser: Any, page: Path
) -> None:
    for width in (1280, 390):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get(page.as_uri())
        check(browser, width)
        check_links(browser)
        browser.get((page.parent / "comparison.html").as_uri())
        check_comparison(browser, width)
    assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []


def check(browser: Any, width: int) -> None:
    def asked(script: str) -> Any:
        return browser.execute_script(f"return {script.strip()}")

    drawn = "[...document.querySelectorAll('[data-figure] .main-svg:first-child')]"
    assert asked(f"{drawn}.length") == FIGURES
    assert asked("document.querySelectorAll('section').length") == FIGURES + 1
    assert asked("document.documentElement.scrollWidth") <= width
    assert asked(CLIPPED) == []
    assert asked(f"Math.max(...{drawn}.map(svg => svg.getBoundingClientRect().right))") <= width
    assert asked("performance.getEntriesByType('resource').map(e => e.name)") == []
    assert asked("document.title").endswith(": when to switch")
    assert asked("document.querySelector('h1').textContent").startswith(NAME)
    asked("document.querySelector('details').open = true")
    assert asked("document.querySelector('details table').getBoundingClientRect().height") > 0
    assert asked("document.documentElement.scrollWidth") <= width
    if width > 1000:
        assert asked(CUT) == []


def check_comparison(browser: Any, width: int) -> None:
    """Both sides are in the same figures, and the page needs no more room."""
    asked = browser.execute_script
    traces = "document.querySelectorAll('[data-figure=curves] .scatterlayer .trace').length"
    assert asked(f"return {traces}") >= 3
    assert asked("return document.querySelectorAll('h2.side').length") == 2
    assert asked("return document.querySelector('#differences table').offsetHeight > 0")
    assert asked("return document.documentElement.scrollWidth") <= width
    assert asked(f"return {CLIPPED.strip()}") == []
    assert asked("return performance.getEntriesByType('resource').length") == 0


def check_links(browser: Any) -> None:
    """A point and a row of a table lead to the row of their run, whose table opens."""
    from selenium.webdriver.support.wait import WebDriverWait

    asked = browser.execute_script
    assert asked("return document.querySelector('tr[id]').closest('details').open") is False
    asked("document.querySelector('#accuracy').scrollIntoView()")
    point = asked(
        "const box = document.querySelector('#accuracy path.point').getBoundingClientRect();"
        "return {x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2}"
    )
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        browser.execute_cdp_cmd(
            "Input.dispatchMouseEvent", {"type": kind, "button": "left", "clickCount": 1, **point}
        )
    found = "const row = document.querySelector('tr:target'), box = row.getBoundingClientRect();"
    WebDriverWait(browser, 10).until(lambda _: asked("return location.hash") == "#run-1")
    assert asked(f"{found} return row.cells[0].textContent") == "trial 0"
    assert asked(f"{found} return box.height > 0 && box.top > 0 && box.bottom < innerHeight")
    asked("document.querySelector('#search details').open = true")
    asked("document.querySelector('#search tbody tr:nth-child(2) a').click()")
    WebDriverWait(browser, 10).until(lambda _: asked("return location.hash") == "#run-3")
    assert asked(f"{found} return box.top > 0 && box.bottom < innerHeight")
