"""A search from Python: what `syncswitch-search run` does, for notebooks and programs."""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from pydantic import ConfigDict, Field, SkipValidation, ValidationError, validate_call

from syncswitch.searcher.backends.base import JobRequest, plan_search
from syncswitch.searcher.backends.registry import trainer_named
from syncswitch.searcher.mlflow import copy_to_mlflow
from syncswitch.searcher.search.checkpoints import DEFAULT_FOLDER
from syncswitch.searcher.search.early_words import too_short
from syncswitch.searcher.search.reporter import Reporter
from syncswitch.searcher.search.search import Search
from syncswitch.searcher.strategies.registry import make_strategy
from syncswitch.storage.database.defaults import DEFAULT_URL, ENVIRONMENT_VARIABLE
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.export.mlflow.server import check_mlflow
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.run.tensorboard import check_tensorboard, logged

__all__ = ["search"]

_LOG = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _checked(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Holds a call to the annotations; one that does not keep to them is a UserError."""
    names = list(inspect.signature(function).parameters)
    checked = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)

    @functools.wraps(function)
    def call(*arguments: _P.args, **options: _P.kwargs) -> _T:
        try:
            return checked(*arguments, **options)
        except ValidationError as error:
            first = error.errors()[0]
            place = first["loc"][0]
            name = names[place] if isinstance(place, int) else place
            raise UserError(
                f"{name} is {first['input']!r}: {first['msg']} (see help(search))"
            ) from error

    return call


@_checked
def search(
    workload: str | Workload,
    *,
    trainer: str = "local",
    trainer_options: Mapping[str, Any] | None = None,
    workers: Annotated[int, Field(ge=1, le=100_000)] | None = None,
    protocols: str | None = None,
    storage: str | None = None,
    strategy: Literal["adaptive", "paper"] = "adaptive",
    settings: int = 5,
    runs: int = 5,
    threshold: float | None = None,
    target_accuracy: float | None = None,
    guarded: bool | None = None,
    keep: float | None = None,
    uses: int | None = None,
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
        trainer: What makes the runs, as `--trainer`.
        trainer_options: The options of that trainer by their names on the command line, without
            dashes: `{"launcher": "processes"}`.
        workers: n; None for what is usual.
        protocols: Before and after the switch, such as `bsp,asp`; None for what is usual.
        storage: URL of the database; None for that of SYNCSWITCH_STORAGE, or syncswitch.db here.
        strategy: Strategy of the search: adaptive or paper.
        settings: M, how often the range of switch points may be halved.
        runs: R, runs of each switch point; but for the paper's strategy, at most.
        threshold: beta, the accuracy that may be lost, in the unit of the metric; None for 0.01,
            which metrics other than shares have to be told.
        target_accuracy: A, the value of the metric to keep; None to measure it.
        guarded: False for a policy that holds with the bare switch; else trainings are expected
            to go back to a switch that failed, as those of `syncswitch-run` do.
        keep: Not guarded, so large a share that keeps the accuracy is enough, above 0.5 and below
            1; None for 0.95.
        uses: How often the policy will be used; None for 30.
        seed: The seeds of all runs derive from it.
        online: What is done about stragglers: none, greedy or elastic.
        switch: hot or restart.
        checkpoints: Folder for the checkpoints that runs share.
        tensorboard: Folder for logs of the runs, which TensorBoard shows; None for none.
        mlflow: Tracking URI of MLflow, to which the job is copied in the end; None for none.
        reporter: Is told how it goes on.
        strategy_options: Further fields of the strategy, such as `budget` of the adaptive one.

    Returns:
        The policy, as it is saved.

    Raises:
        UserError: Something does not exist, is out of range, or does not fit the rest.
        RetryableError: Too many runs in a row failed; what was made is kept.
    """
    url = storage or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_URL
    chosen = trainer_named(trainer, trainer_options or {})
    own = workload if isinstance(workload, Workload) else None
    named = workload if isinstance(workload, str) else None
    request = JobRequest(
        reference=named,
        workers=chosen.workers(workers),
        usual_workers=chosen.default_workers,
        protocols=chosen.pair(protocols),
        storage_url=url,
        seed=seed,
        workload=own,
    )
    decides = make_strategy(
        strategy,
        settings=settings,
        runs=runs,
        threshold=threshold,
        target_accuracy=target_accuracy,
        guarded=guarded,
        keep=keep,
        uses=uses,
        **strategy_options,
    )
    if tensorboard is not None:
        check_tensorboard(tensorboard)
    if mlflow is not None:
        check_mlflow(mlflow)
    plan, job = plan_search(
        chosen,
        request,
        decides,
        ConditionsChoice(online, switch),
        threshold_is_given=threshold is not None,
    )
    for word in (job.note, too_short(job.identity, plan.strategy)):
        if word is not None:
            _LOG.warning(word)
    reference = job.reference or (job.identity.name if named is None else normal_reference(named))
    with open_database(url, create=True) as database:
        found = Search(
            database,
            job.identity,
            plan,
            lambda: logged(job.open_trainer(), tensorboard, found.study_name),
            reference=reference,
            reporter=reporter,
            checkpoints=checkpoints,
        )
        policy = found.run().policy
        copy_to_mlflow(mlflow, database, [job.identity], _LOG.warning)
        return policy
