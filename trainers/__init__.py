"""Does the training: turns a trial specification into one measured training run."""

from syncswitch.storage.former import former_names

__getattr__ = former_names(
    __name__,
    {
        "syncswitch": "Data NumpyFiles Observer PipelinePieces PolicyCallback Source StreamedData"
        " TFRecordFiles Verdict Workload fit from_compiled load_workload",
        "syncswitch.plugins": "Trainer",
        "syncswitch.trainers.cluster.chief.trainer": "ClusterTrainer",
        "syncswitch.trainers.command.job": "CommandJob CommandTemplate",
        "syncswitch.trainers.command.trainer": "CommandTrainer",
        "syncswitch.trainers.job.fingerprint": "workload_identity",
        "syncswitch.trainers.simulated.profile": "ClusterProfile load_profile",
        "syncswitch.trainers.simulated.trainer": "SimulatedTrainer simulated_identity",
    },
)
