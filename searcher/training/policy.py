"""Chooses what `syncswitch-run` trains and where it switches: by policy, by learning or as told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncswitch.searcher.backends.base import USUAL_EXPECTED_RUNS, ClusterChoice
from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.learning.next_run import NextRun, next_run
from syncswitch.searcher.learning.pairs import next_pair
from syncswitch.searcher.search.plan import check_threshold
from syncswitch.searcher.selection import Selection, is_policy_file, known_policies, none_found
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.training.resume import InterruptedRun
from syncswitch.searcher.training.uses import RunRecorder
from syncswitch.searcher.words import other_jobs_text
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import holds_nothing
from syncswitch.storage.errors import (
    Command,
    CommandHint,
    OptionHint,
    Part,
    PolicyError,
    Said,
    SyncSwitchError,
    UserError,
    leave_out,
)
from syncswitch.storage.policies.registry import CURRENT, PolicyEntry
from syncswitch.storage.policies.unmeasured import (
    LEARNT,
    candidates_text,
    unmeasured_policy,
    unmeasured_text,
)
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.job import (
    EARLY_RULES,
    OWN_RULES,
    SEMI_SYNC,
    Protocols,
    ScheduledJob,
    protocol_text,
)
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.job.fingerprint import trains_rows
from syncswitch.trainers.job.hyperparameters import highest_rate, momentum_rule
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.job.schedule import check_length
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.protocols import check_protocols
from syncswitch.trainers.run.trials import fitting

Interrupted = Callable[[Any, float | None], InterruptedRun | None]
"""Finds the run that goes on, for a workload and the percent where it must have switched.

None as the percent stands for any. It gives None where another run begins.
"""


@dataclass(frozen=True)
class SwitchChoice:
    """What decides when a training switches: a policy, learning, or its user.

    The fields are arguments of `train`; `allowed` is its `threshold` or `threshold_runs`. Raises
    UserError where they contradict each other.
    """

    policy: str | None = None
    switch_at: float | None = None
    protocol: str | None = None
    guarded: bool = True
    learn: bool | None = None
    expected_runs: int = USUAL_EXPECTED_RUNS
    allowed: AllowedLoss | None = None

    def __post_init__(self) -> None:
        if self.learn and not self.guarded:
            raise UserError(
                "needs the guard",
                parameter="learn",
                value=True,
                remedy=leave_out("guarded", False),
                code="parameters-conflict",
            )
        said = {
            "learn": self.learn,
            "switch_at": self.switch_at is not None,
            "protocol": self.protocol is not None,
            "policy": self.policy is not None,
        }
        given = [option for option, is_said in said.items() if is_said]
        if len(given) > 1:
            raise UserError(
                "both say when to switch",
                parameter=given,
                remedy="leave out one of them",
                code="parameters-conflict",
            )
        kept = [leave_out(one) for one in given if one != "learn"]
        kept += [] if self.guarded else [leave_out("guarded", False)]
        kept += [leave_out("learn", False)] if self.learn is False else []
        if self.allowed is not None and kept:
            raise UserError(
                "is for runs that learn",
                parameter=self.allowed.parameter,
                remedy=(kept[0], leave_out(self.allowed.parameter)),
                code="parameters-conflict",
            )

    @property
    def percent(self) -> float | None:
        """The switch point that the user names; None to leave it to the policy or to learning."""
        return self.switch_at if self.protocol is None else BASELINE_PERCENT

    @property
    def may_learn(self) -> bool:
        """Whether the run may try another switch point than its policy's."""
        return self.guarded and self.learn is not False and self.policy is None


@dataclass(frozen=True)
class RunRequest:
    """A training as its user asked for it.

    The reference is a workload, or the name of a command. None as `workers` or `pair` stands for
    those of the policy, as `seed` for that of the run that goes on, or one that no other run has.
    `goes_back` is whether a command that fails after its switch goes back to it, rather than to its
    beginning; None for what trains workloads, which do.
    """

    trainer: ClusterChoice | UsersCommand
    reference: str
    workers: int | None
    pair: tuple[str, str] | None
    seed: int | None
    recorder: RunRecorder
    when: SwitchChoice
    interrupted: Interrupted = lambda *_: None
    goes_back: bool | None = None

    @property
    def choice(self) -> str:
        return self.when.policy or CURRENT

    def next_run(self, database: Database, identity: ScheduledJob) -> NextRun:
        when = self.when
        return next_run(database, identity, when.expected_runs, self.goes_back, when.allowed)

    @property
    def selection(self) -> Selection:
        return Selection(
            self.reference,
            self.workers,
            None if self.pair is None else ",".join(self.pair),
            self.trainer.simulated_cluster or "real",
            self.choice,
            self.trainer.search_options,
        )


@dataclass(frozen=True)
class ChosenRun:
    """A run that is about to begin, with the workload as its trainer loaded it.

    At a switch point of the user's own it counts for a policy that it does not use.
    """

    workload: Any
    identity: ScheduledJob
    seed: int
    run: NextRun
    counts_for: TimingPolicy | None = None


def choose(request: RunRequest) -> ChosenRun:
    """The run that its user, learning or the policy wants.

    Raises UserError if no cluster of this size can run these protocols, the job is too short for
    it, or there is no such policy, and PolicyError if none is for exactly this job, and the run may
    not learn.
    """
    if request.when.percent is not None:
        return _chosen_by_user(request, request.when.percent)
    if request.when.learn:
        return _chosen_by_learning(request)
    return _chosen_by_policy(request)


def _chosen_by_user(request: RunRequest, switch_percent: float) -> ChosenRun:
    """A run at a switch point of the user's own; its usual seed is 0, to compare such runs.

    One protocol alone is a run of the usual job where that begins with it; else there is a job of
    these two protocols only where one is known already.
    """
    workload, identity = _own_job(request)
    usual = request.trainer.pair(None)[0]
    begins = request.when.protocol is None or identity.first_protocol == usual
    planned = NextRun(None, switch_percent, may_begin=begins)
    known = request.recorder.policy_of(identity)
    return ChosenRun(workload, identity, request.seed or 0, planned, known)


def _chosen_by_learning(request: RunRequest) -> ChosenRun:
    """The next run, by the runs so far. It creates the database if need be."""
    workload, identity = _own_job(request)
    with open_database(request.recorder.url, create=True) as database:
        identity, planned = _next_run(request, database, workload, identity)
    return _learning(request, workload, identity, planned, normal_reference(request.reference))


def _chosen_by_policy(request: RunRequest) -> ChosenRun:
    """A run that switches where its policy says, or where learning wants to try.

    A job that has none learns from its first run on, if it may.
    """
    trainer, recorder, selection = request.trainer, request.recorder, request.selection
    if isinstance(trainer, ClusterChoice):
        trainer.find(request.reference)
    may_learn = request.when.may_learn
    if may_learn and holds_nothing(recorder.url):
        return _chosen_by_learning(request)
    entries = known_policies(selection, recorder.url)
    meant = selection
    if isinstance(trainer, UsersCommand):  # what differs of another job's policy is said
        meant = replace(selection, workers=None, protocols=None)
    candidates = meant.matching(entries)
    elsewhere = replace(selection, cluster=None).matching(entries)
    is_real = trainer.simulated_cluster is None
    if not candidates and may_learn:
        begun = _begun(request, elsewhere) if is_real else None
        if begun is None and entries:
            recorder.tell(none_found(entries, selection, recorder.url, ["this run begins its own"]))
        return begun or _chosen_by_learning(request)
    if not candidates:
        if elsewhere and is_real:
            raise _only_simulated(request, elsewhere)
        raise none_found(entries, selection, recorder.url)
    workload: Any = trainer.load(
        request.reference, max(entry.identity.workers for entry in candidates)
    )
    try:
        policy, identity = _exact(request, candidates, workload)
    except PolicyError as error:
        if not may_learn:
            raise
        recorder.tell(UserError(error.what, remedy="this run begins its own"))
        return _chosen_by_learning(request)
    found: tuple[ScheduledJob, NextRun] | None = None
    is_learnt = policy.study.startswith(LEARNT) or (is_real and isinstance(trainer, ClusterChoice))
    if may_learn and policy.guarded and is_learnt:
        found = recorder.asked(
            lambda database: _next_run(request, database, workload, identity, policy), None
        )
    if found is not None and found[1].band is not None:
        return _learning(request, workload, *found)
    if request.when.allowed is not None:
        name = request.when.allowed.parameter
        raise UserError(
            f"is for runs that learn, and version {policy.version} was found by a search",
            parameter=name,
            remedy=(OptionHint("learn", True, "add"), OptionHint(name, verb="search with that")),
            code="parameters-conflict",
        )
    percent, seed = policy.switch_percent, request.seed
    band = recorder.band(policy) if request.when.guarded else None
    if seed is None:
        goes_on = request.interrupted(workload, percent)
        seed = goes_on.seed if goes_on else recorder.own_seed(identity)
        recorder.tell(f"this run has seed {seed}")
    return ChosenRun(workload, identity, seed, NextRun(policy, percent, band))


def _exact(
    request: RunRequest, candidates: Sequence[PolicyEntry], workload: Any
) -> tuple[TimingPolicy, ScheduledJob]:
    """The first of at least one policy that was found for exactly this job, and the job."""
    for entry in candidates:
        identity = _job_like(entry.identity, request, workload)
        if entry.policy.is_of(identity):
            return entry.policy, identity
    policy, reference = candidates[0].policy, request.reference
    own = replace(request.selection, workers=identity.workers)
    search = replace(own.search, verb="find its own with:")
    if identity.is_command:
        differences = min((_differences(one.identity, request) for one in candidates), key=len)
        differs = [part for one in differences for part in (", and for ", *one)]
        raise PolicyError(
            [f"policy {request.choice!r} of {reference!r} is for ", *differs[1:]],
            remedy=search,
            code="policy-unfit",
        )
    if identity.fingerprint == policy.job.fingerprint:
        raise PolicyError(
            f"policy {request.choice!r} of {reference!r} is for {policy.protocols.described}, not"
            f" for {identity.protocols.described}",
            remedy=search,
            code="policy-unfit",
        )
    raise PolicyError(
        f"policy {request.choice!r} is for workload {policy.job.workload!r} as it was with"
        f" {policy.job.total_worker_steps:,} worker-steps (fingerprint"
        f" {policy.job.fingerprint[:12]}), not for {reference!r} as it is now with"
        f" {identity.total_worker_steps:,} (fingerprint {identity.fingerprint[:12]})",
        remedy=search,
        code="policy-unfit",
    )


def _job_like(job: ScheduledJob, request: RunRequest, workload: Any) -> ScheduledJob:
    """The requested job, with workers and protocols of another one where they are not said."""
    pair = request.pair or (job.first_protocol, job.second_protocol)
    workers = request.workers or job.workers
    return _checked(request, request.trainer.identity(workload, workers, pair))


def _checked(request: RunRequest, identity: ScheduledJob) -> ScheduledJob:
    """The job; raises UserError where its runs could not lose as much as is allowed."""
    allowed = request.when.allowed
    if allowed is not None and not allowed.is_from_runs:
        check_threshold(allowed.threshold, identity.metric.accuracies)
    return identity


def _differences(job: ScheduledJob, request: RunRequest) -> list[list[Part]]:
    here = _job_like(job, request, request.reference)
    metrics = [one.metric.axis_title for one in (job, here)]
    compared = (
        (("total_steps",), job.length, here.length),
        (("workers",), job.size, here.size),
        (("protocols",), job.pair, here.pair),
        (("metric_name", "metric_goal", "metric_unit"), *metrics),
    )
    differences: list[list[Part]] = []
    for names, there, own in compared:
        if there != own:
            said = [part for name in names for part in (", ", OptionHint(name, verb=""))]
            differences.append([f"{there}, not {own} (", *said[1:], ")"])
    if job.recipe.model != here.recipe.model:
        differences.append(["a ", OptionHint("command", verb=""), " of other words"])
    return differences


def _begun(request: RunRequest, entries: Sequence[PolicyEntry]) -> ChosenRun | None:
    """The first real run of a job, from a policy of the same job on a simulated cluster."""
    for job in (entry.identity for entry in entries):
        workload: Any = request.trainer.load(request.reference, job.workers)
        identity = _job_like(job, request, workload)
        real = replace(job.job, simulated_cluster=None)
        if real.fingerprint == identity.fingerprint and job.protocols == identity.protocols:
            with open_database(request.recorder.url, create=False) as database:
                planned = request.next_run(database, identity)
            name = normal_reference(request.reference)
            return _learning(request, workload, identity, planned, name)
    return None


def _only_simulated(request: RunRequest, entries: Sequence[PolicyEntry]) -> PolicyError:
    jobs = "; ".join(f"{one.policy.job.workload!r} on {one.identity.cluster}" for one in entries)
    choice, reference, selection = request.choice, request.reference, request.selection
    # Of several the newest; its name alone may mean any of them.
    newest = f"{entries[0].policy.job.fingerprint[:12]}@{choice}"
    which = choice if is_policy_file(choice) else newest
    tried: tuple[str | OptionHint, ...] = (
        reference,
        OptionHint("policy", which),
        *selection.options,
    )
    return PolicyError(
        f"policy {choice!r} was found for a simulated job ({jobs}), not for the real"
        f" {reference!r}; a guarded run that learns begins from it, as long as the workload is the"
        " same and no policy is given",
        remedy=(
            CommandHint(Command.SWEEP, tried, "try it on the real job with:"),
            replace(selection.search, verb="search for the real job with:"),
        ),
        code="policy-unfit",
    )


def _learning(
    request: RunRequest,
    workload: Any,
    identity: ScheduledJob,
    planned: NextRun,
    reference: str | None = None,
) -> ChosenRun:
    """A run that learns as it was planned, or the one that was interrupted.

    `reference` makes a job known to a database that does not know it yet.
    """
    planned = _with_second_phases(request, workload, identity, planned)
    goes_on, seed = request.interrupted(workload, None), request.seed
    if goes_on:
        planned = replace(planned, switch_percent=goes_on.switch_percent)
        if request.pair is None and goes_on.protocols is not None:
            # It goes on as it began, whatever policy there is by now.
            planned = replace(planned, candidates=goes_on.candidates, fallbacks=goes_on.fallbacks)
            identity = replace(identity, protocols=goes_on.protocols)
    if seed is None:
        seed = goes_on.seed if goes_on else request.recorder.own_seed(identity, reference)
    request.recorder.tell(_run_text(identity, seed, planned))
    return ChosenRun(workload, identity, seed, planned)


_LOCAL = "qsr:8:{rate:g}:semi-sync"
"""Local SGD as a second phase: recorded jobs tolerate it as early as ASP."""


def _with_second_phases(
    request: RunRequest, workload: Any, identity: ScheduledJob, planned: NextRun
) -> NextRun:
    """The run, with the second phases that it may try and fall back to.

    A first one tries which is the fastest on its cluster.
    """
    if planned.switch_percent >= BASELINE_PERCENT:
        return planned
    allowed = _second_phases(request, workload, identity)
    is_open = planned.is_first_switch and identity.protocols in allowed[:1]
    return replace(
        planned,
        candidates=allowed if is_open else (),
        fallbacks=allowed if len(allowed) > 1 else (),
    )


def _second_phases(
    request: RunRequest, workload: Any, identity: ScheduledJob
) -> tuple[Protocols, ...]:
    """The second phases that a run of a job may take, the usual one first.

    They are those that recorded jobs tolerate as early. None where the user says what it is, or
    the job has others.
    """
    trainer = request.trainer
    if request.pair is not None or not isinstance(trainer, ClusterChoice):
        return ()
    if identity.momentum_after_switch == SEMI_SYNC:
        first, second = trainer.pair(None)
        usual = Protocols(first, second, momentum_rule(workload, second))
        allowed = second_phases(replace(identity, protocols=usual), workload)
        return allowed if identity.protocols in allowed else ()
    return second_phases(identity, workload)


def _next_run(
    request: RunRequest,
    database: Database,
    workload: Any,
    identity: ScheduledJob,
    policy: TimingPolicy | None = None,
) -> tuple[ScheduledJob, NextRun]:
    """The next run of a job, and the job with the protocols that it takes.

    Those of a policy that a search has found stay.
    """
    is_searched = policy is not None and not policy.study.startswith(LEARNT)
    allowed = () if is_searched else _second_phases(request, workload, identity)
    if len(allowed) > 1:
        expected_runs = request.when.expected_runs
        pair, why = next_pair(database, identity, allowed, expected_runs, request.goes_back)
        identity = replace(identity, protocols=pair)
        if why is not None:
            request.recorder.tell(why)
    return identity, request.next_run(database, identity)


def second_phases(identity: ScheduledJob, workload: Workload) -> tuple[Protocols, ...]:
    """The protocols among which a first run of a job may choose; the usual ones come first."""
    if identity.workers < 2 or identity.momentum_after_switch not in OWN_RULES:
        return ()
    candidates = [identity.protocols]
    # Local SGD has no other batch, and no table of which a replica has some rows.
    if workload.batch_after_switch == "same" and not trains_rows(workload):
        local = _LOCAL.format(rate=highest_rate(workload, identity.workers))
        rule = momentum_rule(workload, local)
        other = Protocols(identity.first_protocol, local, rule)
        candidates += [other] if rule in EARLY_RULES else []
    return fitting(candidates, identity.workers, identity.total_worker_steps)


def _run_text(identity: ScheduledJob, seed: int, planned: NextRun) -> Said:
    first, second = map(protocol_text, (identity.first_protocol, identity.second_protocol))
    policy, percent, simulated = planned.policy, planned.switch_percent, planned.begins_from
    begin, is_switch = f"this run, with seed {seed},", percent < BASELINE_PERCENT
    if simulated is not None:
        how = f"switches to {second} at {percent:g} %, guarded" if is_switch else f"uses {first}"
        return (
            f"{begin} starts from the policy of simulated runs (version {simulated.version} for"
            f" {simulated.job.workers} simulated workers): it {how}; after that only runs on this"
            " cluster count"
        )
    expected = planned.expected
    if expected is not None:
        return UserError([f"{begin} ", *_unmeasured_text(identity, planned, expected)])
    if policy is None or percent == policy.switch_percent:
        how = f"switches to {second} at {percent:g} %" if is_switch else f"uses {first} alone"
        if (known := planned.known_from) is not None:
            how += f"; what {first} alone reaches is known from version {known.version}"
        return f"{begin} {how}"
    how = f"a switch to {second} at {percent:g} %" if is_switch else f"{first} alone"
    if planned.candidates:
        named = candidates_text([one.second_protocol for one in planned.candidates])
        how = f"{named} at {percent:g} % and goes on with the fastest, or {first}"
    usual = f"switches at {policy.switch_percent:g} %"
    if policy.switch_percent >= BASELINE_PERCENT:
        usual = f"uses {first} alone"
    words = (
        f"{begin} tries {how}, as that may save later runs more time than it costs; policy version"
        f" {policy.version} {usual}, and "
    )
    return UserError([words, OptionHint("learn", False, ""), " keeps to it"])


def _unmeasured_text(identity: ScheduledJob, planned: NextRun, expected: Decided) -> list[Part]:
    """What a run does while no target is measured and why, and what is not known."""
    first, left = protocol_text(identity.first_protocol), planned.runs_left
    threshold = planned.band.threshold if planned.band is not None else 0.0
    if planned.switch_percent >= BASELINE_PERCENT:
        measures = "it measures the target"
        if not threshold and planned.allowed is not None:
            measures = (
                f"it is one of the {planned.allowed.runs} runs that measure the target, and how"
                " much worse a model may be,"
            )
        return [
            f"uses {first} alone: {measures} for the {left - 1:,} runs after it (",
            OptionHint("expected_runs", verb=""),
            "). Knowing it is expected to save these more time than a switch would save now. How"
            " early this job may switch is not known yet",
        ]
    notice = unmeasured_text(
        replace(
            unmeasured_policy(identity),
            switch_percent=planned.switch_percent,
            target_accuracy=expected.target_accuracy,
            promise=expected.promise,
            allowed=AllowedLoss(threshold),
        ),
        "what was trained after it" if planned.goes_back else "all that was trained until then",
        jobs=other_jobs_text(planned.own_jobs, identity.momentum_after_switch),
        has_runs=planned.policy is not None,
        span="this run" if left == 1 else f"the {left:,} runs to come",
        candidates=[one.second_protocol for one in planned.candidates],
    )
    return [notice, "; to say how many runs you expect, ", OptionHint("expected_runs", verb="use")]


def _own_job(request: RunRequest) -> tuple[Any, ScheduledJob]:
    """The job of a run that follows no policy."""
    trainer, (workers, pair) = request.trainer, size_and_pair(request)
    workload: Any = trainer.load(request.reference, workers)
    if isinstance(trainer, UsersCommand):
        return workload, _checked(request, trainer.identity(workload, workers, pair))
    check_protocols(pair, workers)
    identity = _checked(request, trainer.identity(workload, workers, pair))
    check_length(identity)
    return workload, identity


def size_and_pair(request: RunRequest) -> tuple[int, tuple[str, str]]:
    """Workers and protocols of a run that follows no policy: as asked, or the current policy's.

    So runs can be compared. Without a policy for such a cluster they are the usual ones. Raises
    UserError where a database that is there does not say: others would make it another job.
    """
    workers, pair, trainer = request.workers, request.pair, request.trainer
    if (workers is None or pair is None) and not holds_nothing(request.recorder.url):
        selection = Selection(request.reference, cluster=request.selection.cluster)
        try:
            entries = known_policies(selection, request.recorder.url)
        except SyncSwitchError as error:
            raise UserError(
                ("the workers and protocols of this job cannot be read: ", error),
                remedy=(
                    OptionHint("workers", verb="say both with"),
                    OptionHint("protocols", verb=""),
                ),
                code="parameter-missing",
            ) from error
        for entry in selection.matching(entries)[:1]:
            job = entry.identity
            return workers or job.workers, pair or (job.first_protocol, job.second_protocol)
    return workers or trainer.default_workers, pair or trainer.pair(None)
