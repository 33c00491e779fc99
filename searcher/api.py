"""The commands as Python functions, for notebooks and programs.

`search` does what `syncswitch-search run` does, `sweep` and `report` what the commands of their
names do, and `train` what `syncswitch-run` does. Bad input raises a `UserError` of one line, which
names parameters as they are called here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from syncswitch.searcher.backends.base import JobRequest, plan_search
from syncswitch.searcher.backends.registry import trainer_named
from syncswitch.searcher.mlflow import check_copies, copy_to_mlflow
from syncswitch.searcher.python_calls import WORDS, checked, tell
from syncswitch.searcher.report.data import load_report
from syncswitch.searcher.report.page import page_of, write_page
from syncswitch.searcher.search.checkpoints import DEFAULT_FOLDER
from syncswitch.searcher.search.plan import too_short
from syncswitch.searcher.search.reporter import Reporter
from syncswitch.searcher.search.search import Search
from syncswitch.searcher.selection import ClusterKind, policy_named
from syncswitch.searcher.strategies.registry import make_strategy
from syncswitch.searcher.sweeps import Sweep, plan_sweep
from syncswitch.searcher.training import train as training
from syncswitch.storage.database.defaults import database_url
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.job import LARGEST_SEED
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.job.workload import Workload

__all__ = ["report", "search", "sweep", "train"]


@checked
def search(
    workload: str | Workload,
    *,
    trainer: str = "local",
    trainer_options: Mapping[str, Any] | None = None,
    workers: Annotated[int, Field(ge=1, le=100_000)] | None = None,
    protocols: str | None = None,
    storage: str | None = None,
    strategy: Literal["adaptive", "paper"] = "adaptive",
    halvings: int = 5,
    runs: int = 5,
    threshold: float | None = None,
    threshold_runs: int | None = None,
    target_accuracy: float | None = None,
    guarded: bool | None = None,
    min_kept_share: float | None = None,
    expected_runs: int | None = None,
    seed: int = 0,
    online: Literal["none", "greedy", "elastic"] = "none",
    switch: Literal["hot", "restart"] = "hot",
    checkpoints: Path = DEFAULT_FOLDER,
    tensorboard: Path | None = None,
    mlflow: str | None = None,
    reporter: SkipValidation[Reporter | None] = None,
    **strategy_options: Any,
) -> TimingPolicy:
    """Finds the timing policy of a workload, and saves it.

    The same call goes on where an interrupted one stopped, and answers at once when the search is
    finished. Several processes that make it on one database share the work.

    Example:
        ```
        policy = search("digits", trainer="simulated", workers=8, storage="sqlite:///mine.db")
        print(policy.switch_percent)
        ```

    Args:
        workload: A built-in name, `file.py:attribute`, `package.module:attribute`, or the object
            itself where the runs are made in this process.
        trainer: The kind of trainer, as `--trainer`.
        trainer_options: The options of that trainer by their names on the command line, without
            dashes: `{"launcher": "processes"}`.
        workers: n; None for the usual number.
        protocols: Before and after the switch, such as `bsp,asp`; None for the usual ones.
        storage: URL of the database; None for SYNCSWITCH_STORAGE, or syncswitch.db in this folder.
        strategy: Strategy of the search: adaptive or paper.
        halvings: M, how often the range of switch points may be halved.
        runs: R, runs of each switch point: exactly with the paper's strategy, else at most.
        threshold: beta, the accuracy that may be lost, in the unit of the metric; None for 0.01
            where its best value is 1, else to measure it.
        threshold_runs: Measure it in the first so many runs with the first protocol alone, 3 to
            100; None for 3 where it is measured.
        target_accuracy: A, the value of the metric to keep; None to measure it.
        guarded: False for a policy that holds without a guard; else trainings are expected
            to go back to a switch that failed, as those of `syncswitch-run` do.
        min_kept_share: The share of unguarded runs that has to keep the accuracy, above 0.5 and
            below 1; None for 0.95.
        expected_runs: Expected number of trainings with the policy; None for 30.
        seed: The seeds of all runs derive from it.
        online: Treatment of stragglers: none, greedy or elastic.
        switch: hot or restart.
        checkpoints: Folder for the checkpoints that runs share.
        tensorboard: Folder for logs of the runs, which TensorBoard shows; None for none.
        mlflow: Tracking URI of MLflow to which the job is copied at the end; None for none.
        reporter: Told of the progress.
        strategy_options: Further fields of the strategy, such as `budget` of the adaptive one.

    Returns:
        The saved policy.

    Raises:
        UserError: Something does not exist, is out of range, or does not fit the rest.
        RetryableError: Too many runs in a row failed; what was made is kept.
    """
    url = database_url(storage)
    chosen = trainer_named(trainer, trainer_options or {})
    request = JobRequest(
        reference=workload if isinstance(workload, str) else None,
        workers=chosen.workers(workers),
        usual_workers=chosen.default_workers,
        protocols=chosen.pair(protocols),
        storage_url=url,
        seed=seed,
        chosen=ConditionsChoice(online, switch),
        workload=workload if isinstance(workload, Workload) else None,
    )
    decides = make_strategy(
        strategy,
        halvings=halvings,
        runs=runs,
        threshold=threshold,
        threshold_runs=threshold_runs,
        target_accuracy=target_accuracy,
        guarded=guarded,
        min_kept_share=min_kept_share,
        expected_runs=expected_runs,
        **strategy_options,
    )
    check_copies(tensorboard, mlflow)
    plan, job = plan_search(chosen, request, decides, threshold_is_given=threshold is not None)
    for word in (job.note, too_short(job.identity, plan.strategy)):
        if word is not None:
            tell(word)
    with open_database(url, create=True) as database:
        found = Search(
            database,
            job.identity,
            plan,
            job.open_trainer,
            reference=normal_reference(job.reference),
            reporter=reporter,
            checkpoints=checkpoints,
            tensorboard=tensorboard,
        )
        policy = found.run().policy
        copy_to_mlflow(mlflow, database, [job.identity], tell)
        return policy


@checked
def sweep(
    workload: str,
    at: Annotated[Sequence[float], Field(min_length=1)] | None = None,
    *,
    policies: Sequence[str | SkipValidation[TimingPolicy]] = (),
    trainer: str = "local",
    trainer_options: Mapping[str, Any] | None = None,
    workers: Annotated[int, Field(ge=1, le=100_000)] | None = None,
    protocols: Sequence[str] = (),
    storage: str | None = None,
    runs: Annotated[int, Field(ge=1, le=10_000)] = 5,
    threshold: float | None = None,
    target_accuracy: float | None = None,
    guarded: bool = False,
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0,
    online: Literal["none", "greedy", "elastic"] = "none",
    switch: Literal["hot", "restart"] = "hot",
    tensorboard: Path | None = None,
    mlflow: str | None = None,
    reporter: SkipValidation[Reporter | None] = None,
) -> Sweep:
    """Trains a workload at chosen switch points, and compares them with one target.

    Only missing runs are made; the same call goes on where an interrupted one stopped.

    Example:
        ```
        found = sweep("digits", [100, 50, 0], trainer="simulated", runs=2)
        for point in found.jobs[0].switch_points:
            print(point.switch_percent, point.mean_accuracy, found.kept_runs(point))
        found = sweep("digits,batch_size=64", policies=["digits"], trainer="simulated")
        print([found.keeps_accuracy(point) for point in found.jobs[0].switch_points])
        ```

    Args:
        workload: As for `search`, by its name or reference.
        at: The switch points, percent of the worker-steps, to which those of the policies are
            added; None for these alone, or for the usual ones where there are no policies.
        policies: Policies of other jobs to try: each a policy, a policy file, or a workload or the
            start of a fingerprint in the database, with `@VERSION` or `@ALIAS` unless the current
            one is meant. The job's own policy is then trained with as well.
        trainer: The kind of trainer, as `--trainer`.
        trainer_options: As for `search`.
        workers: n; None for the first policy's, or the usual number.
        protocols: Pairs such as `bsp,asp`; empty for the policies', or the usual one.
        storage: As for `search`.
        runs: R, runs at each switch point, recorded ones included.
        threshold: beta, in the unit of the metric; None for the first policy's, or as for `search`.
        target_accuracy: A, the value of the metric to keep; None to measure it.
        guarded: Whether a training that fails after its switch goes back to it.
        seed: The seeds of all runs derive from it.
        online: Treatment of stragglers: none, greedy or elastic.
        switch: hot or restart.
        tensorboard: Folder for logs of the runs; None for none.
        mlflow: Tracking URI of MLflow to which the jobs are copied at the end; None for none.
        reporter: Told of the progress.

    Returns:
        The results of each job, the one that sets the target first.

    Raises:
        UserError: Something does not exist, is out of range, or does not fit the rest.
        RetryableError: Too many runs in a row failed; what was made is kept.
    """
    url = database_url(storage)
    plan = plan_sweep(
        trainer_named(trainer, trainer_options or {}),
        workload,
        at,
        policies=[
            policy_named(one, url, tell) if isinstance(one, str) else one for one in policies
        ],
        protocols=protocols,
        workers=workers,
        online=online,
        switch=switch,
        runs=runs,
        threshold=threshold,
        target_accuracy=target_accuracy,
        guarded=guarded,
        seed=seed,
        storage_url=url,
    )
    check_copies(tensorboard, mlflow)
    for word in dict.fromkeys(job.note for job in plan.jobs):
        if word is not None:
            tell(word)
    with open_database(url, create=True) as database:
        swept = plan.run(database, tensorboard=tensorboard, reporter=reporter)
        copy_to_mlflow(mlflow, database, [job.identity for job in plan.jobs], tell)
        return swept


train = checked(training.train)


@checked
def report(
    workload: str,
    output: Path | None = None,
    *,
    workers: Annotated[int, Field(ge=1)] | None = None,
    protocols: str | None = None,
    cluster: ClusterKind | None = None,
    study: str | None = None,
    version: str | None = None,
    storage: str | None = None,
) -> str:
    """Writes the report of a job, one HTML page.

    Example:
        ```
        report("digits", "report.html")
        ```

    Args:
        workload: Name, reference, or 8 or more digits of the fingerprint.
        output: File to write; None for none.
        workers: Only the job on this many workers.
        protocols: Only the job with these, such as `bsp,asp`.
        cluster: Only the job on a real or on a simulated cluster; None for the real one, where jobs
            of this name are on both.
        study: Search to show; None for the one that found the policy, else the newest.
        version: Version or alias of the policy to show; None for the current one.
        storage: As for `search`.

    Returns:
        The page.

    Raises:
        UserError: There is no such job, search or policy, or the file cannot be written.
    """
    data = load_report(
        database_url(storage),
        workload,
        workers=workers,
        protocols=protocols,
        cluster=cluster,
        study=study,
        version=version,
    )
    page = page_of(data, WORDS)
    if output is not None:
        write_page(page, output)
    return page
