"""`syncswitch-search run`: searches for the timing policy of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncswitch.cli.completion import complete_workload
from syncswitch.cli.console import print_json, print_note
from syncswitch.cli.options import (
    PROTOCOLS_HELP,
    combined,
    common_options,
    conditions_options,
    is_given,
    mlflow_option,
    protocols_option,
    seed_option,
    tensorboard_option,
    workers_option,
)
from syncswitch.cli.panels import PanelCommand
from syncswitch.cli.search.launch.making import (
    opened_for,
    parallel_runs_option,
    print_notes,
    resumable,
)
from syncswitch.cli.trainer_kinds import trainer_options
from syncswitch.cli.words import OPTION_WORDS
from syncswitch.searcher.backends.base import (
    ClusterChoice,
    JobRequest,
    TrainableJob,
    TrainerChoice,
    plan_search,
)
from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.backends.registry import TRAINERS
from syncswitch.searcher.command_lines import use_command
from syncswitch.searcher.mlflow import check_copies
from syncswitch.searcher.search.plan import too_short
from syncswitch.searcher.strategies.registry import DEFAULT_STRATEGY, STRATEGIES, make_strategy
from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import Command, CommandHint, OptionHint, UserError
from syncswitch.storage.policies.unguarded import unguarded_warning
from syncswitch.storage.records.job import USUAL_PROTOCOLS
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.job.hyperparameters import highest_rate
from syncswitch.trainers.job.loading import find_module, normal_reference

if TYPE_CHECKING:
    from syncswitch.searcher.search.loop import LoopOptions
    from syncswitch.searcher.search.pairs import PairsResult
    from syncswitch.searcher.search.plan import SearchPlan
    from syncswitch.storage.records.policy import TimingPolicy


_ANY = "any"
_ANY_SECONDS = (
    *("asp", "qsr:8:RATE:semi-sync", "local-sgd:4:semi-sync", "selsync:0.3"),
    *("ssp:3", "dssp:3-15", "gba:3"),
)

strategy_options = combined(
    click.option(
        "--strategy",
        type=click.Choice(list(STRATEGIES)),
        default=DEFAULT_STRATEGY,
        show_default=True,
        help="Strategy of the search: adaptive = each run is chosen to save the most time;"
        " paper = binary search with R runs at each switch point (Sync-Switch, Algorithm 1).",
    ),
    click.option(
        "--runs",
        type=int,
        default=5,
        show_default=True,
        help="Runs at each switch point (R); for adaptive, the most.",
    ),
    click.option(
        "--threshold",
        type=float,
        help="How much accuracy may be lost against the target (beta), in the metric's unit."
        " Default: 0.01 if its best value is 1; otherwise measured from the first runs.",
    ),
    click.option(
        "--threshold-runs",
        metavar="N",
        type=int,
        help="Measure the threshold in the first N runs with the first protocol alone, 3 to 100."
        " Default: 3 where it is measured.",
    ),
    click.option(
        "--guard/--no-guard",
        "guarded",
        default=None,
        help="With --guard, find the policy with the least expected time for guarded runs, which go"
        " back to a switch that failed, as syncswitch-run does; with --no-guard, a policy with"
        " which enough runs keep the accuracy without a guard (adaptive)."
        "  [default: --guard]",
    ),
    click.option(
        "--min-kept-share",
        metavar="SHARE",
        type=float,
        help="With --no-guard: the share of later runs that must keep the accuracy, unless"
        " fewer do with the first protocol alone. Default: 0.95.",
    ),
    click.option(
        "--expected-runs",
        type=int,
        help="How many runs with the policy to expect: the more, the more the search may cost"
        " (adaptive).  [default: 30]",
    ),
    click.option(
        "--grid",
        "switch_points",
        metavar="GRID",
        help="Switch points to choose from: halving, fine (one more between each two of these), or"
        " percentages such as 75,50,40,30 (adaptive). Default: halving, and 75 %.",
    ),
    click.option(
        "--baseline-runs",
        type=int,
        help="Runs with the first protocol alone (paper). Default: as --runs.",
    ),
    click.option(
        "--least-runs",
        type=int,
        help="Runs needed at the switch point that becomes the answer (adaptive). Default: 1, or 2"
        " with --no-guard.",
    ),
    click.option(
        "--budget",
        type=float,
        help="The most the search may cost, in trainings with the first protocol alone (adaptive).",
    ),
    click.option(
        "--share-prefix/--no-share-prefix",
        default=None,
        help="Start runs from checkpoints of other runs with the same seed. Default: yes for"
        " adaptive, no for paper.",
    ),
    click.option(
        "--early-stop/--no-early-stop",
        default=None,
        help="End a run as soon as its accuracy is known, or it fails after its switch."
        " Default: yes for adaptive, no for paper.",
    ),
)


def chosen_pairs(
    trainer: TrainerChoice, texts: Sequence[str], reference: str | None, workers: int | None
) -> tuple[tuple[str, str], ...]:
    """The pairs of `--protocols` for a workload, each once, or the default pair.

    Raises UserError if one is not a pair, or they cannot be searched together.
    """
    if not texts:
        return (trainer.pair(None),)
    if _ANY in texts:
        if len(texts) > 1:
            raise UserError(
                f"--protocols {_ANY} already names several pairs; leave it out, or the others",
                code="parameters-conflict",
            )
        if trainer.default_protocols != USUAL_PROTOCOLS:
            raise UserError(
                f"--protocols {_ANY} is for protocols of syncswitch, and only you know what your"
                " command calls its two ways of training; give each pair with its own --protocols",
                code="parameters-conflict",
            )
        texts = _any_pairs(trainer, reference, workers or trainer.default_workers)
    pairs = tuple(dict.fromkeys(map(trainer.pair, texts)))
    firsts = dict.fromkeys(first for first, _ in pairs)
    if len(firsts) > 1:
        raise UserError(
            f"--protocols begin with {' and '.join(firsts)}: pairs that are searched together must"
            " begin with the same protocol, which sets the target accuracy; search the others"
            " separately",
            code="parameters-conflict",
        )
    return pairs


def _any_pairs(trainer: TrainerChoice, reference: str | None, workers: int) -> list[str]:
    """The pairs of `any`; the quadratic rule is left out where the learning rates are unknown."""
    rate = None
    if isinstance(trainer, ClusterChoice) and reference is not None:
        find_module(reference)
        rate = f"{highest_rate(trainer.load(reference, workers), workers):g}"
    seconds = (protocol.replace("RATE", rate or "RATE") for protocol in _ANY_SECONDS)
    return [f"bsp,{second}" for second in seconds if "RATE" not in second]


@click.command(
    cls=PanelCommand,
    usual=("workers", "protocols", "trainer", "profile", "threshold", "parallel_runs"),
)
@click.argument("reference", metavar="[WORKLOAD]", required=False, shell_complete=complete_workload)
@workers_option(
    None,
    f"Workers, or processes of a command.  [default: {TrainerChoice.default_workers};"
    f" of a command {UsersCommand.default_workers}]",
)
@protocols_option(
    None,
    f"{PROTOCOLS_HELP} Pairs with the same first protocol make one search for the fastest that"
    f" keeps the accuracy; {_ANY} = bsp with seven others. With a command: two names for its ways."
    f"  [default: {TrainerChoice.default_protocols}]",
    f"FIRST,SECOND|{_ANY}",
    multiple=True,
)
@trainer_options(TRAINERS)
@conditions_options
@click.option(
    "--halvings",
    type=int,
    default=5,
    show_default=True,
    help="How often the range of switch points may be halved (M).",
)
@strategy_options
@click.option(
    "--target-accuracy",
    type=float,
    help="Accuracy to keep (A), or the value of another metric. Default: measured with the first"
    " protocol alone.",
)
@click.option(
    "--target-runs",
    type=int,
    help="Number of runs behind --target-accuracy (adaptive). Default: 5.",
)
@seed_option
@click.option(
    "--checkpoints",
    envvar="SYNCSWITCH_CHECKPOINTS",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    default="syncswitch-checkpoints",
    show_default=True,
    help="Folder for the checkpoints that runs share; they are removed when the search is done.",
)
@parallel_runs_option
@tensorboard_option
@mlflow_option()
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only forecast the cost of the search, from recorded runs or from --first-seconds and"
    " --second-seconds.",
)
@click.option(
    "--first-seconds",
    type=float,
    help="Duration of a training with the first protocol alone (--dry-run).",
)
@click.option(
    "--second-seconds",
    type=float,
    help="Duration of a training with the second protocol alone (--dry-run).",
)
@common_options
@resumable
def run(
    reference: str | None,
    workers: int | None,
    protocols: tuple[str, ...],
    trainer: TrainerChoice,
    online: str,
    switch: str,
    strategy: str,
    seed: int,
    checkpoints: Path,
    parallel_runs: int,
    tensorboard: Path | None,
    mlflow: str | None,
    dry_run: bool,
    first_seconds: float | None,
    second_seconds: float | None,
    storage_url: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Search for the timing policy of WORKLOAD and save it.

    WORKLOAD is a built-in name, such as digits or clicks, file.py:attribute or
    package.module:attribute. With --trainer replay it may also be the name of recorded runs or the
    start of their fingerprint; with --trainer command it is a name for the job, by default the name
    of its script.

    Repeat the command to continue an interrupted search; once the search is finished, it answers
    immediately. Several processes on one database share the work.
    """
    from syncswitch.cli.search.launch.result import print_forecast, print_result, result_as_json

    decides = make_strategy(strategy, **options)
    trainer.check_parallel_runs(parallel_runs)
    check_copies(tensorboard, mlflow)
    size, chosen = trainer.workers(workers), ConditionsChoice(online, switch)
    pairs = chosen_pairs(trainer, protocols, reference, size)
    planned = [
        plan_search(
            trainer,
            JobRequest(reference, size, trainer.default_workers, pair, storage_url, seed, chosen),
            decides,
            forks_are_wanted=is_given("share_prefix"),
            threshold_is_given=is_given("threshold"),
        )
        for pair in pairs
    ]
    if len(pairs) > 1:
        names = tuple(map(",".join, pairs))
        planned = [(replace(plan, pairs=names), job) for plan, job in planned]
    plan, job = planned[0]
    if dry_run and len(pairs) > 1:
        raise UserError(
            "--dry-run forecasts the search of one pair; give it with --protocols",
            code="parameters-conflict",
        )
    print_notes((job.note, too_short(job.identity, plan.strategy)))
    if dry_run:
        given = (first_seconds, second_seconds)
        measured_url = job.recordings_url or storage_url
        print_forecast(plan.strategy, job.identity, given, measured_url, as_json=as_json)
        return
    if first_seconds is not None or second_seconds is not None:
        raise UserError(
            "--first-seconds and --second-seconds need --dry-run", code="parameters-conflict"
        )
    making: LoopOptions = {"checkpoints": checkpoints, "tensorboard": tensorboard}
    result, current = _searched(planned, storage_url, parallel_runs, mlflow, making)
    policy = result.best.policy
    plan, job = next(one for one in planned if one[1].identity.protocols == policy.protocols)
    if as_json:
        print_json(result_as_json(result.best, result.pairs))
    else:
        how_to_use = _how_to_use(policy, plan, job, is_current=policy.version == current)
        print_result(result.best, job.identity, how_to_use, result.pairs)
        if job.command is not None and (warning := unguarded_warning(policy)) is not None:
            print_note(warning)


def _searched(
    planned: Sequence[tuple[SearchPlan, TrainableJob]],
    storage_url: str,
    parallel_runs: int,
    mlflow: str | None,
    options: LoopOptions,
) -> tuple[PairsResult, int | None]:
    """Makes the runs that are missing, and publishes the policy; also returns the current version.

    The result lists the pairs if there are several.
    """
    from syncswitch.searcher.search.pairs import PairsResult, search_pairs
    from syncswitch.searcher.search.plan import study_name
    from syncswitch.searcher.search.search import Search
    from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry

    to_train, (first, _) = [job for _, job in planned], planned[0]
    study = study_name(to_train[0].identity, first)
    with opened_for(to_train, storage_url, "search", parallel_runs, mlflow, study) as opened:
        database, jobs, options["reporter"] = opened
        options["reference"] = normal_reference(to_train[0].reference)
        if len(jobs) == 1:
            (job,) = jobs
            search = Search(database, job.identity, first, job.open_trainer, **options)
            found = PairsResult((), search.run())
        else:
            ready = zip(jobs, planned, strict=True)
            pairs = [(job.identity, plan, job.open_trainer) for job, (plan, _) in ready]
            found = search_pairs(database, pairs, **options)
        aliases = PolicyRegistry(database).aliases(found.best.policy.job.fingerprint)
        return found, aliases.get(CURRENT)


def _how_to_use(
    policy: TimingPolicy, plan: SearchPlan, job: TrainableJob, *, is_current: bool
) -> list[str]:
    """Lines with the command line that trains with this policy; of a command, also without us."""
    version = None if is_current else policy.version
    if job.command is not None:
        chosen = () if version is None else (OptionHint("policy", str(version)),)
        use = CommandHint(Command.TRAIN, (job.reference, *job.command_options, *chosen))
    else:
        # What was trained here can be loaded again; what was recorded, perhaps not.
        loaded_from = None if job.recordings_url is None else job.reference
        use = use_command(
            job.identity, loaded_from, job.reference, version, plan.conditions, job.profile
        )
    if is_given("storage_url"):
        place = shown(str(click.get_current_context().params["storage_url"]))
        use = replace(use, arguments=(*use.arguments, OptionHint("storage", place)))
    lines = [f"  {OPTION_WORDS.command(use)}"]
    if job.command is not None:
        lines += ["or by itself, without a guard:", f"  {job.command(policy.switch_percent)}"]
    return lines
