"""`syncswitch-search run`: searches for the timing policy of a workload."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from syncswitch.searcher.cli import compose
from syncswitch.searcher.cli.dry_run import print_forecast
from syncswitch.searcher.plan import SearchPlan, study_name
from syncswitch.storage.errors import RetryableError, UserError, WorkloadError
from syncswitch.trainers.console import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    common_options,
    print_error,
    print_json,
    protocols_option,
    workers_option,
)

if TYPE_CHECKING:
    from syncswitch.searcher.result import SearchResult
    from syncswitch.trainers.trainer import Trainer

__all__ = ["run"]

_DEFAULT_WORKERS = 4


@click.command()
@click.argument("reference", metavar="WORKLOAD")
@workers_option(_DEFAULT_WORKERS)
@protocols_option("bsp,asp")
@click.option(
    "--trainer",
    type=click.Choice([*compose.TRAINERS, compose.REPLAY]),
    default="local",
    show_default=True,
    help="What makes the runs: local = a TensorFlow cluster on this machine; replay = nothing is"
    " trained, recorded runs answer.",
)
@click.option(
    "--recordings",
    "recordings_url",
    metavar="URL",
    help="Database of the recorded runs (--trainer replay).",
)
@click.option(
    "--launcher",
    type=click.Choice(compose.LAUNCHERS),
    default=compose.DEFAULT_LAUNCHER,
    show_default=True,
    help="in-process = workers are threads; processes = servers of their own.",
)
@click.option(
    "--strategy",
    type=click.Choice(list(compose.STRATEGIES)),
    default="paper",
    show_default=True,
    help="Rule of the search: paper = binary search (Sync-Switch, Algorithm 1).",
)
@click.option(
    "--settings", type=int, default=5, show_default=True, help="Switch points to try (M)."
)
@click.option("--runs", type=int, default=5, show_default=True, help="Runs of each setting (R).")
@click.option(
    "--threshold",
    type=float,
    default=0.01,
    show_default=True,
    help="Accuracy that may be lost against the target (beta).",
)
@click.option(
    "--target-accuracy",
    type=float,
    help="Accuracy to keep (A), 0 to 1. Default: measured with the first protocol alone.",
)
@click.option(
    "--two-sided",
    is_flag=True,
    help="Also reject a setting that is better than the target by more than the threshold,"
    " as printed in the paper.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="The seeds of all runs derive from it."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only forecast the cost of the search; from recorded runs, or from the times below.",
)
@click.option(
    "--first-seconds", type=float, help="One training with the first protocol alone (--dry-run)."
)
@click.option(
    "--second-seconds", type=float, help="One training with the second protocol alone (--dry-run)."
)
@common_options
def run(
    reference: str,
    workers: int,
    protocols: str,
    trainer: str,
    recordings_url: str | None,
    launcher: str,
    strategy: str,
    settings: int,
    runs: int,
    threshold: float,
    target_accuracy: float | None,
    two_sided: bool,
    seed: int,
    dry_run: bool,
    first_seconds: float | None,
    second_seconds: float | None,
    storage_url: str,
    as_json: bool,
) -> int:
    """Searches for the timing policy of WORKLOAD and saves it.

    WORKLOAD is a built-in name (digits), file.py:attribute or package.module:attribute; with
    --trainer replay also the name or the start of the fingerprint of recorded runs.

    The same command goes on where an interrupted search stopped, and answers at once when the
    search is finished. Several of them on one database share the work.
    """
    from syncswitch.trainers.protocols import parse_pair

    rule = compose.STRATEGIES[strategy](settings, runs, threshold, target_accuracy, two_sided)
    is_replay = trainer == compose.REPLAY
    kind = trainer if is_replay else f"{trainer}/{launcher}"
    plan = SearchPlan(rule, trainer=kind, base_seed=seed)
    plan.check()
    pair = parse_pair(protocols)
    _check_recordings(is_replay, recordings_url)
    if recordings_url is None:
        job = compose.TRAINERS[trainer](reference, workers, pair, launcher)
    else:
        wanted = workers if _is_given("workers") else None
        job = compose.compose_replay(reference, wanted, pair, recordings_url, storage_url, seed)
    if dry_run:
        given = (first_seconds, second_seconds)
        measured_url = recordings_url or storage_url
        print_forecast(rule, job.identity, given, measured_url, as_json=as_json)
        return EXIT_OK
    if first_seconds is not None or second_seconds is not None:
        raise UserError("--first-seconds and --second-seconds need --dry-run")
    try:
        result, current = _search(job, reference, plan, storage_url)
    except KeyboardInterrupt:
        print_error("interrupted; all finished runs are kept, and the same command goes on")
        return EXIT_INTERRUPTED
    version = result.policy.version
    chosen = None if version == current else version
    _print(result, as_json, _how_to_use(job, reference, chosen))
    return EXIT_OK


def _is_given(parameter: str) -> bool:
    """Whether the user said it, instead of leaving it to its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source == ParameterSource.COMMANDLINE


def _check_recordings(is_replay: bool, recordings_url: str | None) -> None:
    """Refuses options that do not go with the trainer."""
    if is_replay and recordings_url is None:
        raise UserError(
            "--trainer replay needs the database of the recorded runs: add --recordings URL"
        )
    if not is_replay and recordings_url is not None:
        raise UserError("--recordings needs --trainer replay: add that, or leave it out")
    if is_replay and _is_given("launcher"):
        raise UserError(
            "--launcher starts a cluster, and --trainer replay needs none: leave it out"
        )


class _Trainers:
    """Opens trainers; one may be opened in advance, and is then the first that is given out.

    Opening one loads the data and tries the model, so it shows whether the workload can be trained
    before anything is written about it.
    """

    def __init__(self, open_trainer: Callable[[], Trainer]) -> None:
        self._open = open_trainer
        self._ready: Trainer | None = None

    def open_in_advance(self) -> None:
        """A cluster that cannot be had now may be had later: the search tries again."""
        with contextlib.suppress(RetryableError):
            self._ready = self._open()

    def __call__(self) -> Trainer:
        ready, self._ready = self._ready, None
        return self._open() if ready is None else ready

    def close(self) -> None:
        """Closes what nobody took."""
        if self._ready is not None:
            self._ready.close()
            self._ready = None


def _search(
    job: compose.Job, reference: str, plan: SearchPlan, storage_url: str
) -> tuple[SearchResult, int | None]:
    """The result, and the version that is used where none is named."""
    from syncswitch.searcher.cli.progress import make_reporter
    from syncswitch.searcher.search import Search
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.policies import CURRENT, PolicyRegistry
    from syncswitch.trainers.workload import normal_reference

    with (
        contextlib.closing(_Trainers(job.open_trainer)) as trainers,
        contextlib.ExitStack() as stack,
    ):
        if _is_new(study_name(job.identity, plan), storage_url):
            trainers.open_in_advance()
        database = stack.enter_context(open_database(storage_url, create=True))
        reporter = stack.enter_context(make_reporter())
        result = Search(
            database,
            job.identity,
            plan,
            trainers,
            reference=job.reference or normal_reference(reference),
            reporter=reporter,
        ).run()
        aliases = PolicyRegistry(database).aliases(job.identity.fingerprint)
        return result, aliases.get(CURRENT)


def _is_new(study: str, storage_url: str) -> bool:
    """Whether the database does not know this search; nothing is written.

    Raises:
        UserError: The database cannot be used.
    """
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.inspection import holds_nothing
    from syncswitch.storage.trials import TrialStore

    if holds_nothing(storage_url):
        return True
    with open_database(storage_url, create=False) as database:
        return all(search.study != study for search in TrialStore(database).searches())


def _print(result: SearchResult, as_json: bool, how_to_use: str) -> None:
    from syncswitch.searcher.cli import render

    if as_json:
        print_json(render.result_as_json(result))
    else:
        render.print_result(result, how_to_use)


def _how_to_use(job: compose.Job, reference: str, version: int | None) -> str:
    """The command line that uses this policy, with what it would not guess."""
    if _is_loadable(job.reference):
        words, option = ["syncswitch-run", job.reference or reference], "--policy"
    else:
        fingerprint = job.identity.fingerprint[:12]
        words, option = ["syncswitch-search", "policy", "export", fingerprint], "--version"
    if version is not None:
        words += [option, str(version)]
    if option == "--policy" and job.identity.workers != _DEFAULT_WORKERS:
        words += ["--workers", str(job.identity.workers)]
    if _is_given("storage_url"):
        words += ["--storage", str(click.get_current_context().params["storage_url"])]
    return shlex.join(words)


def _is_loadable(recorded_reference: str | None) -> bool:
    """Whether there is something to train; an imported job is only a name."""
    from syncswitch.trainers.workload import find_module

    if recorded_reference is not None:
        try:
            find_module(recorded_reference)
        except WorkloadError:
            return False
    return True
