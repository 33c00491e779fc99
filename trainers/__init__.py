"""Does: turns one trial specification into one measured training run.

What programs use is listed in `__all__`: `PolicyCallback` and `fit` train with a policy that was
found before; the trainers make the runs of a search, or one run alone; `Workload` and `Data` say
what is trained, or `from_compiled` with what Keras' `fit` would get; `StreamedData` reads from
files, each kind of which has a `Source`.
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
    from syncswitch.trainers.job.sources.files import NumpyFiles, TFRecordFiles
    from syncswitch.trainers.job.sources.pipelines import PipelinePieces
    from syncswitch.trainers.job.sources.source import Source
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.keras_api.callback import PolicyCallback
    from syncswitch.trainers.keras_api.fit import fit
    from syncswitch.trainers.keras_api.from_compiled import from_compiled
    from syncswitch.trainers.simulated.profile import ClusterProfile, load_profile
    from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity
    from syncswitch.trainers.trainer import Observer, SilentObserver, Trainer, Verdict

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
    "SilentObserver",
    "SimulatedTrainer",
    "Source",
    "StreamedData",
    "TFRecordFiles",
    "Trainer",
    "Verdict",
    "Workload",
    "fit",
    "from_compiled",
    "load_profile",
    "load_workload",
    "simulated_identity",
    "workload_identity",
]

_OTHERS = {
    "ClusterProfile": "simulated.profile",
    "ClusterTrainer": "cluster.chief.trainer",
    "CommandJob": "command.job",
    "CommandTemplate": "command.job",
    "CommandTrainer": "command.trainer",
    "Data": "job.data",
    "NumpyFiles": "job.sources.files",
    "PipelinePieces": "job.sources.pipelines",
    "PolicyCallback": "keras_api.callback",
    "SimulatedTrainer": "simulated.trainer",
    "Source": "job.sources.source",
    "StreamedData": "job.data",
    "TFRecordFiles": "job.sources.files",
    "Workload": "job.workload",
    "fit": "keras_api.fit",
    "from_compiled": "keras_api.from_compiled",
    "load_profile": "simulated.profile",
    "load_workload": "job.loading",
    "simulated_identity": "simulated.trainer",
    "workload_identity": "job.fingerprint",
}
__getattr__ = lazy_names(__name__, {name: _OTHERS.get(name, "trainer") for name in __all__})
