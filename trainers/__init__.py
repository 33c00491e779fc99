"""Does the training: turns a trial specification into one measured training run."""

from syncswitch.storage.former import former_names

__getattr__ = former_names(
    __name__,
    {
        "searcher.training.fit": "fit",
        "trainers.cluster.chief.trainer": "ClusterTrainer",
        "trainers.command.job": "CommandJob CommandTemplate",
        "trainers.command.trainer": "CommandTrainer",
        "trainers.job.data": "Data StreamedData",
        "trainers.job.fingerprint": "workload_identity",
        "trainers.job.loading": "load_workload",
        "trainers.job.pipelines": "PipelinePieces",
        "trainers.job.sources": "NumpyFiles Source TFRecordFiles",
        "trainers.job.workload": "Workload",
        "trainers.keras_api.callback": "PolicyCallback",
        "trainers.keras_api.from_compiled": "from_compiled",
        "trainers.simulated.profile": "ClusterProfile load_profile",
        "trainers.simulated.trainer": "SimulatedTrainer simulated_identity",
        "trainers.trainer": "Observer Trainer Verdict",
    },
)
