"""Does the training: turns a trial specification into one measured training run.

`__all__` lists the names for programs. `PolicyCallback` trains with an existing policy;
the trainers make the runs of a search, or a single run. `Workload` and `Data` describe a training
job, and `from_compiled` makes one from the arguments of Keras' `fit`. `StreamedData` reads examples
from files through a `Source`.
"""

from typing import TYPE_CHECKING

from syncswitch.storage.lazy import lazy_names

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
    from syncswitch.trainers.command.job import CommandJob, CommandTemplate
    from syncswitch.trainers.command.trainer import CommandTrainer
    from syncswitch.trainers.job.data import Data, StreamedData
    from syncswitch.trainers.job.fingerprint import workload_identity
    from syncswitch.trainers.job.loading import load_workload
    from syncswitch.trainers.job.pipelines import PipelinePieces
    from syncswitch.trainers.job.sources import NumpyFiles, Source, TFRecordFiles
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.keras_api.callback import PolicyCallback
    from syncswitch.trainers.keras_api.from_compiled import from_compiled
    from syncswitch.trainers.simulated.profile import ClusterProfile, load_profile
    from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity
    from syncswitch.trainers.trainer import Observer, Trainer, Verdict

__all__ = [
    "ClusterProfile",
    "ClusterTrainer",
    "CommandJob",
    "CommandTemplate",
    "CommandTrainer",
    "Data",
    "NumpyFiles",
    "Observer",
    "PipelinePieces",
    "PolicyCallback",
    "SimulatedTrainer",
    "Source",
    "StreamedData",
    "TFRecordFiles",
    "Trainer",
    "Verdict",
    "Workload",
    "from_compiled",
    "load_profile",
    "load_workload",
    "simulated_identity",
    "workload_identity",
]

__getattr__ = lazy_names(
    __name__,
    {
        "cluster.chief.trainer": "ClusterTrainer",
        "command.job": "CommandJob CommandTemplate",
        "command.trainer": "CommandTrainer",
        "job.data": "Data StreamedData",
        "job.fingerprint": "workload_identity",
        "job.loading": "load_workload",
        "job.pipelines": "PipelinePieces",
        "job.sources": "NumpyFiles Source TFRecordFiles",
        "job.workload": "Workload",
        "keras_api.callback": "PolicyCallback",
        "keras_api.from_compiled": "from_compiled",
        "simulated.profile": "ClusterProfile load_profile",
        "simulated.trainer": "SimulatedTrainer simulated_identity",
        "trainer": "Observer Trainer Verdict",
    },
)
