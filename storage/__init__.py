"""Stores trials, evaluations and timing policies in one SQL database."""

from syncswitch.storage.former import former_names

__getattr__ = former_names(
    __name__,
    {
        "storage.database.engine": "Database open_database",
        "storage.errors": "FatalError RetryableError SyncSwitchError UserError",
        "storage.policies.file": "read_policy_file write_policy",
        "storage.policies.registry": "PolicyRegistry",
        "storage.records.job": "Job Protocols RunConditions ScheduledJob",
        "storage.records.policy": "TimingPolicy",
        "storage.records.trial": "Evaluation PhaseRecord RunEvent TrialRecord TrialSpec",
        "storage.trials.store": "TrialStore",
        "storage.trials.values": "StoredTrial",
    },
)
