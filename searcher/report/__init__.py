"""The report of a job: its contents (`ReportData`), its figures and the page.

```
from syncswitch.searcher.report import figures, load_report

data = load_report("sqlite:///syncswitch.db", "digits")
figures.accuracy_by_switch(data)  # a notebook shows it
```

Figures and page need the extra `report`.
"""

from typing import TYPE_CHECKING

from syncswitch.storage.lazy import lazy_names

if TYPE_CHECKING:
    from syncswitch.searcher.report.data import ReportData, load_report
    from syncswitch.searcher.report.page import page_of

__all__ = ["ReportData", "load_report", "page_of"]

__getattr__ = lazy_names(__name__, {"data": "ReportData load_report", "page": "page_of"})
