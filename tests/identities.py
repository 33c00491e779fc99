"""A job that tests search for, replay and give fingerprints to; the others differ from it."""

from __future__ import annotations

from syncswitch.storage.records.job import Job, Protocols, Recipe, ScheduledJob
from syncswitch.storage.records.metric import DescribedMetric

GENERATED = ScheduledJob(
    Job(
        name="generated",
        total_worker_steps=3000,
        workers=4,
        recipe=Recipe(
            model="0" * 64,
            data_set="none",
            loss="none",
            optimizer="{}",
            batch_size=32,
            learning_rate=0.1,
            momentum=0.9,
            learning_rate_boundaries=((1500, 0.1),),
            evaluation_interval_worker_steps=50,
        ),
        described_metric=DescribedMetric("accuracy"),
    ),
    Protocols("bsp", "asp", "same"),
)
UNRECORDED = (
    "model",
    "data_set",
    "loss",
    "optimizer",
    "batch_size",
    "learning_rate",
    "momentum",
    "learning_rate_boundaries",
    "metric",
    "evaluation_interval_worker_steps",
)
"""What nobody wrote down of an imported job."""
