"""Remembers: trials, evaluations and timing policies in one SQL database.

What programs use is listed in `__all__`; `syncswitch.storage.frames` has the tables for pandas.
"""

from typing import TYPE_CHECKING

from syncswitch.storage.lazy import lazy_names

if TYPE_CHECKING:
    from syncswitch.storage.database.engine import Database, open_database
    from syncswitch.storage.errors import FatalError, RetryableError, SyncSwitchError, UserError
    from syncswitch.storage.policies.file import read_policy_file, write_policy
    from syncswitch.storage.policies.registry import PolicyRegistry
    from syncswitch.storage.records import (
        Evaluation,
        PhaseRecord,
        RunConditions,
        RunEvent,
        TimingPolicy,
        TrialRecord,
        TrialSpec,
        WorkloadIdentity,
    )
    from syncswitch.storage.trials.store import StoredTrial, TrialStore

__all__ = [
    "Database",
    "Evaluation",
    "FatalError",
    "PhaseRecord",
    "PolicyRegistry",
    "RetryableError",
    "RunConditions",
    "RunEvent",
    "StoredTrial",
    "SyncSwitchError",
    "TimingPolicy",
    "TrialRecord",
    "TrialSpec",
    "TrialStore",
    "UserError",
    "WorkloadIdentity",
    "open_database",
    "read_policy_file",
    "write_policy",
]

_ERRORS = ("FatalError", "RetryableError", "SyncSwitchError", "UserError")
_TRIALS = ("StoredTrial", "TrialStore")
_OTHERS = {
    "Database": "database.engine",
    "open_database": "database.engine",
    "PolicyRegistry": "policies.registry",
    "read_policy_file": "policies.file",
    "write_policy": "policies.file",
    **dict.fromkeys(_ERRORS, "errors"),
    **dict.fromkeys(_TRIALS, "trials.store"),
}
__getattr__ = lazy_names(__name__, {name: _OTHERS.get(name, "records") for name in __all__})
