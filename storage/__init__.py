"""Stores trials, evaluations and timing policies in one SQL database.

`__all__` lists the names for programs; `syncswitch.storage.frames` has the tables for pandas.
"""

from typing import TYPE_CHECKING

from syncswitch.storage.lazy import lazy_names

if TYPE_CHECKING:
    from syncswitch.storage.database.engine import Database, open_database
    from syncswitch.storage.errors import FatalError, RetryableError, SyncSwitchError, UserError
    from syncswitch.storage.policies.file import read_policy_file, write_policy
    from syncswitch.storage.policies.registry import PolicyRegistry
    from syncswitch.storage.records.job import Job, Protocols, RunConditions, ScheduledJob
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.storage.records.trial import (
        Evaluation,
        PhaseRecord,
        RunEvent,
        TrialRecord,
        TrialSpec,
    )
    from syncswitch.storage.trials.store import TrialStore
    from syncswitch.storage.trials.values import StoredTrial

__all__ = [
    "Database",
    "Evaluation",
    "FatalError",
    "Job",
    "PhaseRecord",
    "PolicyRegistry",
    "Protocols",
    "RetryableError",
    "RunConditions",
    "RunEvent",
    "ScheduledJob",
    "StoredTrial",
    "SyncSwitchError",
    "TimingPolicy",
    "TrialRecord",
    "TrialSpec",
    "TrialStore",
    "UserError",
    "open_database",
    "read_policy_file",
    "write_policy",
]

__getattr__ = lazy_names(
    __name__,
    {
        "database.engine": "Database open_database",
        "errors": "FatalError RetryableError SyncSwitchError UserError",
        "policies.file": "read_policy_file write_policy",
        "policies.registry": "PolicyRegistry",
        "records.job": "Job Protocols RunConditions ScheduledJob",
        "records.policy": "TimingPolicy",
        "records.trial": "Evaluation PhaseRecord RunEvent TrialRecord TrialSpec",
        "trials.store": "TrialStore",
        "trials.values": "StoredTrial",
    },
)
