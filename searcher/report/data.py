"""What a report shows of one job, read once: frozen values, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from syncswitch.searcher.report.history import PathStep
from syncswitch.searcher.search.explanation import Explanation
from syncswitch.searcher.simulation.estimates import mean
from syncswitch.searcher.speed_up import SpeedUp, speed_up_of
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.storage.policies.registry import EvidenceTrial, PolicyEntry
from syncswitch.storage.queries.search_costs import StudyCost
from syncswitch.storage.queries.summaries import SwitchPointStatistics
from syncswitch.storage.queries.uses import PolicyUseFacts
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialState
from syncswitch.storage.trials.values import SearchInfo, StoredTrial
from syncswitch.storage.uses.summary import UseSummary
from syncswitch.trainers.replay.recording import RecordedRun

# Who needs more trainings than this to save what a search cost saves nothing that counts.
_LONGEST_PAYBACK = 10_000


@dataclass(frozen=True, slots=True)
class ReportRun:
    """One training run.

    Attributes:
        trial: As the database has it.
        whole: From its first worker-step on, what a fork inherited included; None for a run that
            is not complete, or whose beginning is lost.
        outcome: `whole`, `stopped` (early: its accuracy was known, or a guard ended it),
            `diverged`, `cancelled` (no longer needed), `failed`, `running` or `stale` (its process
            died).
    """

    trial: StoredTrial
    whole: RecordedRun | None
    outcome: str

    @property
    def name(self) -> str:
        """What people tell it from the others by."""
        if self.trial.source is not None:
            return self.trial.source
        return f"trial {self.trial.trial_number}"

    @property
    def is_complete(self) -> bool:
        """Whether it measured something."""
        return self.trial.state == TrialState.COMPLETE

    @property
    def is_sound(self) -> bool:
        """Complete, and not diverged."""
        return self.is_complete and not self.trial.diverged


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a switch point has to keep.

    Attributes:
        target_accuracy: A, 0 to 1.
        threshold: beta, the accuracy that may be lost.
        origin: Where these come from, in words.
    """

    target_accuracy: float
    threshold: float
    origin: str

    @property
    def least_accuracy(self) -> float:
        """The lowest mean accuracy that is accepted."""
        return self.target_accuracy - self.threshold


@dataclass(frozen=True, slots=True)
class MeanSeconds:
    """Mean training time of whole runs.

    Attributes:
        half: Of its 95 % interval (Student's); None for a single run.
    """

    value: float
    half: float | None


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that a report shows.

    Attributes:
        identity: The job.
        reference: How to load its workload, as the database knows it.
        place: The database, without password.
        read_at: When it was read; UTC.
        policy: The policy that is shown; None where there is none yet.
        versions: All versions, newest first.
        evidence: What the database still has of the runs that the policy rests on, in its order.
        search: The search that is shown: the one that found the policy, else the newest; None
            where there is none.
        searches: All searches and evaluations of the job and what they cost.
        trouble: Why the search has no answer; None where nothing is wrong.
        conditions: Under which the runs trained that the figures compare.
        runs: All runs of the job, in the order in which they were added.
        switch_points: Statistics of the switch points, of completed runs under `conditions`.
        path: The runs of the search in their order, and what was known after each.
        why: Why the policy, or the search so far, says what it says; None where nobody knows.
        no_why: Why nobody knows.
        acceptance: What a switch point has to keep; None as long as nothing was measured.
        software: Version by name of distribution.
        uses: The later runs with the policy, of all versions.
        use_summaries: How each version has done, by its number.
    """

    identity: WorkloadIdentity
    reference: str
    place: str
    read_at: datetime
    policy: PolicyEntry | None
    versions: tuple[PolicyEntry, ...]
    evidence: tuple[EvidenceTrial, ...]
    search: SearchInfo | None
    searches: tuple[StudyCost, ...]
    trouble: str | None
    conditions: RunConditions
    runs: tuple[ReportRun, ...]
    switch_points: tuple[SwitchPointStatistics, ...]
    path: tuple[PathStep, ...]
    why: Explanation | None
    no_why: str | None
    acceptance: Acceptance | None
    software: Mapping[str, str]
    uses: tuple[PolicyUseFacts, ...]
    use_summaries: Mapping[int, UseSummary]

    @property
    def first(self) -> str:
        """The first protocol, as people write it."""
        return self.identity.first_protocol.upper()

    @property
    def second(self) -> str:
        """The second one."""
        return self.identity.second_protocol.upper()

    @property
    def cost(self) -> StudyCost | None:
        """Of the search that is shown."""
        if self.search is None:
            return None
        return next(one for one in self.searches if one.study == self.search.study)

    @property
    def answer(self) -> TimingPolicy | None:
        """The policy itself."""
        return None if self.policy is None else self.policy.policy

    @property
    def is_found_here(self) -> bool:
        """Whether the search that is shown found the policy that is shown."""
        if self.policy is None or self.search is None or self.policy.imported_at is not None:
            return False
        return self.policy.policy.study == self.search.study

    @property
    def is_evaluation(self) -> bool:
        """What is shown compares switch points and looks for none."""
        return self.search is not None and self.search.strategy == ComparisonStrategy().name

    @property
    def what(self) -> str:
        """`search` or `evaluation`."""
        return "evaluation" if self.is_evaluation else "search"

    @property
    def unplaced_runs(self) -> int:
        """Completed runs that count for no switch point, so that no figure compares them."""
        return sum(run.is_complete and run.trial.candidate_percent is None for run in self.runs)

    @property
    def compared(self) -> tuple[ReportRun, ...]:
        """The completed runs that count for a switch point, under the conditions of the report."""
        return tuple(
            run
            for run in self.runs
            if run.is_complete
            and run.trial.candidate_percent is not None
            and run.trial.conditions == self.conditions
        )

    @property
    def search_runs(self) -> tuple[ReportRun, ...]:
        """Of the search that is shown, whatever became of them."""
        if self.search is None:
            return ()
        return tuple(run for run in self.runs if run.trial.study == self.search.study)

    def at(self, candidate_percent: float) -> tuple[ReportRun, ...]:
        """The compared runs of one switch point."""
        return tuple(
            run for run in self.compared if run.trial.candidate_percent == candidate_percent
        )

    def whole_seconds(self, candidate_percent: float) -> MeanSeconds | None:
        """Training time of a whole run at a switch point.

        Of a run that was stopped early it is what the whole would have taken; diverged runs are
        left out. None where no time is known.
        """
        return mean_seconds(run.trial.whole_run_seconds for run in self.at(candidate_percent))

    @property
    def baseline_seconds(self) -> float | None:
        """One training with the first protocol alone, everywhere on the page.

        As the policy has it; where it says nothing, the mean of the runs, else an estimate.
        """
        if self.answer is not None and self.answer.baseline_seconds:
            return self.answer.baseline_seconds
        measured = self.whole_seconds(BASELINE_PERCENT)
        if measured is not None and measured.value > 0:
            return measured.value
        return self.cost.baseline_seconds or None if self.cost is not None else None

    @property
    def baseline_is_estimated(self) -> bool:
        """No run with the first protocol alone says `baseline_seconds`."""
        if self.answer is not None and self.answer.baseline_seconds:
            return False
        return self.whole_seconds(BASELINE_PERCENT) is None

    @property
    def policy_seconds(self) -> float | None:
        """One training with the policy; None without one, or where its time is unknown."""
        return None if self.answer is None else self.answer.training_seconds

    @property
    def measured_speed_up(self) -> SpeedUp | None:
        """Times as fast as the first protocol alone, and how surely; None where that is unknown."""
        if self.answer is not None and self.answer.speed_up is not None:
            return speed_up_of(self.answer)
        if not self.policy_seconds or not self.baseline_seconds:
            return None
        return SpeedUp(self.baseline_seconds / self.policy_seconds)

    @property
    def speed_up(self) -> float | None:
        """The same without its interval."""
        found = self.measured_speed_up
        return found.value if found else None

    @property
    def recurrences_to_pay_back(self) -> float | None:
        """Trainings with the policy that save what its search cost.

        Infinite where the policy saves nothing that counts; None where that is not known. As the
        paper's "amortized cost" (Tables IV to VI): search cost / (1 - time with the policy).
        """
        if not self.is_found_here or self.cost is None or self.speed_up is None:
            return None
        assert self.policy_seconds is not None  # or there were no speed-up
        saved = self.policy_seconds * (self.speed_up - 1)
        times = self.cost.paid_seconds / saved if saved > 0 else math.inf
        return times if times <= _LONGEST_PAYBACK else math.inf


def mean_seconds(values: Iterable[float | None]) -> MeanSeconds | None:
    """Of those that are known; None for none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    found = mean(known)
    return MeanSeconds(found.value, found.high - found.value if len(known) > 1 else None)
