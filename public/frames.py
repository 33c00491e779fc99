"""Tables for pandas: trials, evaluations, events, switch points, policies, uses, costs, times.

```
from syncswitch import frames

frames.switch_points("sqlite:///syncswitch.db", workload="digits")
frames.describe("switch_points")  # the meaning of the columns
```

Every function takes an open database or its URL, and raises UserError if the database cannot be
opened. The columns and their types are always the same, also without rows, and on every database:
times are in UTC, a missing measurement is NaN, and software is JSON text.

Keywords choose the rows in the database: `workload` (name, normal reference, or 8 or more digits of
the fingerprint) and `fingerprint`; for searches also `study`; for runs also `since` and `until`
(their beginning, with a time zone); for single trials also `kinds`, `trial_number`, `state`,
`candidate_percent` and `trial_ids`. Later runs with a policy are trials of the kind `use`. An
impossible value raises UserError.
"""

from syncswitch.storage.frames import (
    describe,
    evaluations,
    events,
    policies,
    search_costs,
    switch_points,
    time_to_accuracy,
    trials,
    uses,
)

__all__ = [
    "describe",
    "evaluations",
    "events",
    "policies",
    "search_costs",
    "switch_points",
    "time_to_accuracy",
    "trials",
    "uses",
]
