"""The figures of a job's report, for a notebook; they need the extra `report`.

```
from syncswitch import figures, load_report

data = load_report("sqlite:///syncswitch.db", "digits")
figures.accuracy_by_switch(data)
```
"""

from syncswitch.searcher.report.figures import (
    accuracy_by_switch,
    accuracy_over_time,
    later_uses,
    search_path,
)

__all__ = ["accuracy_by_switch", "accuracy_over_time", "later_uses", "search_path"]
