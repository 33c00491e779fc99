"""Stores trials, evaluations and timing policies in one SQL database."""

from syncswitch.storage.former import former_names

__getattr__ = former_names(
    __name__,
    {
        "syncswitch": "Database Evaluation FatalError PolicyRegistry RetryableError StoredTrial"
        " SyncSwitchError TimingPolicy TrialRecord TrialStore UserError open_database"
        " read_policy_file write_policy",
        "syncswitch.plugins": "Job PhaseRecord Protocols RunConditions RunEvent ScheduledJob"
        " TrialSpec",
    },
)
