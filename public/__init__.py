"""Finds when a distributed training should switch from BSP to ASP, and trains with the switch.

The names of this module, and of `syncswitch.script`, `syncswitch.frames`, `syncswitch.figures` and
`syncswitch.plugins`, are all that programs may use: every other module is private, and changes
without notice. A name is imported when it is first used, so `import syncswitch` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncswitch._lazy import lazy_names

__version__ = "0.2.0"

__all__ = [
    "AdaptiveStrategy",
    "AveragePeriod",
    "BinarySearchSampler",
    "Data",
    "Database",
    "DatabaseAwayError",
    "DatabaseError",
    "DeprecatedWarning",
    "Evaluation",
    "ExperimentalWarning",
    "FatalError",
    "FitRecord",
    "Forecast",
    "LightningCallback",
    "LocalSgd",
    "LoopSwitch",
    "NumpyFiles",
    "Observer",
    "PaperStrategy",
    "PipelinePieces",
    "PolicyCallback",
    "PolicyError",
    "PolicyRegistry",
    "RecordingError",
    "ReportData",
    "Reporter",
    "RetryableError",
    "SecondWay",
    "Source",
    "StoredTrial",
    "StreamedData",
    "Sweep",
    "SyncSwitchError",
    "TFRecordFiles",
    "TimingPolicy",
    "Training",
    "TransformersCallback",
    "TrialRecord",
    "TrialStore",
    "UserError",
    "Verdict",
    "Workload",
    "WorkloadError",
    "__version__",
    "figures",
    "fit",
    "forecast",
    "frames",
    "from_compiled",
    "load_report",
    "load_workload",
    "lookup",
    "open_database",
    "plugins",
    "read_policy_file",
    "report",
    "script",
    "search",
    "sweep",
    "train",
    "write_policy",
]

if TYPE_CHECKING:
    from syncswitch import figures, frames, plugins, script
    from syncswitch.searcher.api import report, search, sweep, train
    from syncswitch.searcher.forecast import Forecast, forecast
    from syncswitch.searcher.lookup import lookup
    from syncswitch.searcher.report.data import ReportData, load_report
    from syncswitch.searcher.search.reporter import Reporter
    from syncswitch.searcher.search.sampler import BinarySearchSampler
    from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
    from syncswitch.searcher.strategies.paper import PaperStrategy
    from syncswitch.searcher.sweeps import Sweep
    from syncswitch.searcher.training.fit import fit
    from syncswitch.searcher.training.train import Training
    from syncswitch.storage.database.engine import Database, open_database
    from syncswitch.storage.errors import (
        DatabaseAwayError,
        DatabaseError,
        FatalError,
        PolicyError,
        RecordingError,
        RetryableError,
        SyncSwitchError,
        UserError,
        WorkloadError,
    )
    from syncswitch.storage.marks import DeprecatedWarning, ExperimentalWarning
    from syncswitch.storage.policies.file import read_policy_file, write_policy
    from syncswitch.storage.policies.registry import PolicyRegistry
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.storage.records.trial import Evaluation, TrialRecord
    from syncswitch.storage.trials.store import TrialStore
    from syncswitch.storage.trials.values import StoredTrial
    from syncswitch.trainers.job.data import Data, StreamedData
    from syncswitch.trainers.job.loading import load_workload
    from syncswitch.trainers.job.pipelines import PipelinePieces
    from syncswitch.trainers.job.sources import NumpyFiles, Source, TFRecordFiles
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.keras_api.callback import PolicyCallback
    from syncswitch.trainers.keras_api.from_compiled import from_compiled
    from syncswitch.trainers.keras_api.in_memory import FitRecord
    from syncswitch.trainers.loop_switch import LoopSwitch
    from syncswitch.trainers.protocols.period import AveragePeriod
    from syncswitch.trainers.pytorch.lightning import LightningCallback
    from syncswitch.trainers.pytorch.trainer_switch import LocalSgd, SecondWay
    from syncswitch.trainers.pytorch.transformers import TransformersCallback
    from syncswitch.trainers.trainer import Observer, Verdict
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        {
            "": "figures frames plugins script",
            "searcher.api": "report search sweep train",
            "searcher.forecast": "Forecast forecast",
            "searcher.lookup": "lookup",
            "searcher.report.data": "ReportData load_report",
            "searcher.search.reporter": "Reporter",
            "searcher.search.sampler": "BinarySearchSampler",
            "searcher.strategies.adaptive.strategy": "AdaptiveStrategy",
            "searcher.strategies.paper": "PaperStrategy",
            "searcher.sweeps": "Sweep",
            "searcher.training.fit": "fit",
            "searcher.training.train": "Training",
            "storage.database.engine": "Database open_database",
            "storage.errors": "DatabaseAwayError DatabaseError FatalError PolicyError"
            " RecordingError RetryableError SyncSwitchError UserError WorkloadError",
            "storage.marks": "DeprecatedWarning ExperimentalWarning",
            "storage.policies.file": "read_policy_file write_policy",
            "storage.policies.registry": "PolicyRegistry",
            "storage.records.policy": "TimingPolicy",
            "storage.records.trial": "Evaluation TrialRecord",
            "storage.trials.store": "TrialStore",
            "storage.trials.values": "StoredTrial",
            "trainers.job.data": "Data StreamedData",
            "trainers.job.loading": "load_workload",
            "trainers.job.pipelines": "PipelinePieces",
            "trainers.job.sources": "NumpyFiles Source TFRecordFiles",
            "trainers.job.workload": "Workload",
            "trainers.keras_api.callback": "PolicyCallback",
            "trainers.keras_api.from_compiled": "from_compiled",
            "trainers.keras_api.in_memory": "FitRecord",
            "trainers.loop_switch": "LoopSwitch",
            "trainers.protocols.period": "AveragePeriod",
            "trainers.pytorch.lightning": "LightningCallback",
            "trainers.pytorch.trainer_switch": "LocalSgd SecondWay",
            "trainers.pytorch.transformers": "TransformersCallback",
            "trainers.trainer": "Observer Verdict",
        },
        needs={
            "accelerate": "TransformersCallback",
            "lightning": "LightningCallback",
            "tensorflow": "FitRecord PolicyCallback fit from_compiled",
            "torch": "LightningCallback LocalSgd SecondWay TransformersCallback",
            "transformers": "TransformersCallback",
        },
    )
    del __all__  # what can be imported here, `__getattr__` says
