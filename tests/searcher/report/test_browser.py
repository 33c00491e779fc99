"""The page in a real browser: no error, no request, and room on a telephone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from generated_trainer import identity
from stored import Made, add_search, publish, record_of

from syncswitch.searcher.report import load_report, page_of
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.storage.records.use import whole_use
from syncswitch.storage.uses.store import record_use

NAME = "</script><script>document.title='taken'</script>\"<img src=x onerror=alert(1)>"
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


@pytest.fixture
def page(sqlite_url: str, our_tables: None, tmp_path: Path) -> Path:
    """With every section, and text that would run if it could."""
    job = identity(name=NAME)
    with open_database(sqlite_url, create=False) as database:
        policy = publish(database, add_search(database, job=job, strategy="adaptive"))
        use = whole_use(policy, "use", record_of(Made(50.0), TrialSpec(job, 50.0, seed=1)))
        assert use is not None
        record_use(database, use)
        data = load_report(database, job.fingerprint)
    path = tmp_path / "report.html"
    path.write_text(page_of(data))
    return path


@pytest.mark.slow
def test_the_page_is_drawn_without_error_request_or_sideways_scrolling(
    browser: Any, page: Path
) -> None:
    def asked(script: str) -> Any:
        return browser.execute_script(f"return {script.strip()}")

    for width in (1280, 390):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get(page.as_uri())
        drawings = "[...document.querySelectorAll('.figures svg')]"
        assert asked(f"{drawings}.length") == 5
        assert asked(f"Math.min(...{drawings}.map(svg => svg.getBoundingClientRect().height))") > 99
        assert asked(CLIPPED) == []
        assert asked("document.documentElement.scrollWidth") <= width
        assert asked("performance.getEntriesByType('resource').map(e => e.name)") == []
        assert asked("document.title").endswith(": when to switch")
        assert asked("document.querySelector('h1').textContent").startswith(NAME)
    assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []
