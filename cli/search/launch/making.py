"""Makes the search of one pair of protocols, or of several together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncswitch.cli.search.launch.jobs import is_further_job
from syncswitch.cli.search.launch.opening import opened_for_several
from syncswitch.cli.search.launch.progress import LineReporter
from syncswitch.searcher.backends.base import Job
from syncswitch.searcher.mlflow import copy_to_mlflow
from syncswitch.searcher.search.pairs import PairOutcome, PairToSearch, search_pairs
from syncswitch.searcher.search.plan import SearchPlan, study_name
from syncswitch.searcher.search.search import LoopOptions, Search, SearchResult
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.run.tensorboard import logged
from syncswitch.trainers.trainer import Trainer


@dataclass(frozen=True)
class MadeSearch:
    """What came of it.

    Attributes:
        pairs: What became of each of several pairs; empty for one alone.
        plan: Of the search that published the policy.
        job: Its job.
        current_version: Of this job's policies.
    """

    result: SearchResult
    pairs: tuple[PairOutcome, ...]
    plan: SearchPlan
    job: Job
    current_version: int | None


@dataclass(frozen=True)
class SearchMaker:
    """What the command line says of a search beside its plan.

    Attributes:
        called: What the user called the workload.
        jobs: Number of runs at once.
    """

    called: str
    storage_url: str
    jobs: int
    checkpoints: Path
    tensorboard_folder: Path | None
    mlflow_uri: str | None

    def make(self, planned: Sequence[tuple[SearchPlan, Job]]) -> MadeSearch:
        """Makes the runs that are missing, and publishes the policy."""
        jobs, (first, _) = [job for _, job in planned], planned[0]
        study = study_name(jobs[0].identity, first)
        with opened_for_several(jobs, self.storage_url, "search", self.jobs, study) as opened:
            database, openings, reporter = opened
            pairs = [
                self._pair(plan, job, opening)
                for (plan, job), opening in zip(planned, openings, strict=True)
            ]
            reference = jobs[0].reference or normal_reference(self.called)
            result, outcomes = self._searched(database, pairs, reference, reporter)
            if not is_further_job():
                identities = [job.identity for job in jobs]
                copy_to_mlflow(self.mlflow_uri, database, identities, reporter.tell)
            fingerprint = result.policy.fingerprint
            current = PolicyRegistry(database).aliases(fingerprint).get(CURRENT)
        plan, job = next(one for one in planned if one[1].identity.fingerprint == fingerprint)
        return MadeSearch(result, outcomes, plan, job, current)

    def _pair(
        self,
        plan: SearchPlan,
        job: Job,
        opening: Callable[[], Trainer],
    ) -> PairToSearch:
        study = study_name(job.identity, plan)
        return PairToSearch(
            job.identity, plan, lambda: logged(opening(), self.tensorboard_folder, study)
        )

    def _searched(
        self,
        database: Database,
        pairs: Sequence[PairToSearch],
        reference: str,
        reporter: LineReporter,
    ) -> tuple[SearchResult, tuple[PairOutcome, ...]]:
        options: LoopOptions = {
            "reference": reference,
            "reporter": reporter,
            "checkpoints": self.checkpoints,
        }
        if len(pairs) == 1:
            (one,) = pairs
            return Search(database, one.identity, one.plan, one.open_trainer, **options).run(), ()

        def announce(pair: PairToSearch) -> None:
            if not is_further_job():
                reporter.tell(f"{pair.identity.pair}:")

        found = search_pairs(database, pairs, say=announce, **options)
        return found.best, found.pairs
