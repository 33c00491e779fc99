"""The report as one HTML page that needs nothing else, neither a network nor a script."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from syncswitch.searcher.command_lines import replay_words, search_words, use_words
from syncswitch.searcher.learning.words import uses_sentence, uses_text
from syncswitch.searcher.report import figures
from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.drawing import Drawing
from syncswitch.searcher.search.explanation import why_sentences
from syncswitch.searcher.search.policy_words import (
    expected_time_text,
    guard_text,
    kept_text,
    policy_sentences,
    sure_text,
    times_text,
)
from syncswitch.searcher.selection import named_jobs
from syncswitch.searcher.speed_up import speed_up_of
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.searcher.words import (
    NONE,
    accuracy_text,
    conditions_text,
    counted,
    percent_text,
    run_conditions_text,
    seconds_text,
    value_text,
)
from syncswitch.storage.database.defaults import DEFAULT_URL
from syncswitch.storage.errors import UserError
from syncswitch.storage.files import whole_file
from syncswitch.storage.policies.registry import CURRENT, PolicyEntry
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, CONVERGENCE_EVALUATIONS
from syncswitch.storage.trials.values import SearchInfo
from syncswitch.trainers.job.schedule import percent_to_worker_steps
from syncswitch.trainers.replay.recording import REPLAY


def headline(data: ReportData) -> str:
    """The policy in one sentence; without one, how far its search is."""
    name = data.identity.name
    if data.answer is not None:
        uses = data.use_summaries[data.answer.version]
        said = [policy_sentences(data.answer), *([uses_sentence(uses)] if uses.uses else [])]
        return " ".join(said)  # what it promises stands in figures below
    complete = sum(run.is_complete for run in data.runs)
    if data.search is None:
        return f"{counted(complete, 'run')} of {name} recorded; no search for its policy yet."
    if data.trouble is not None:
        end = "cannot go on" if data.is_evaluation else "has no answer"
        return f"The {data.what} for {name} {end}: {data.trouble}."
    if data.is_evaluation:
        return _evaluation_headline(data, data.search)
    made = counted(len(data.path), "run")
    running = sum(run.outcome == "running" for run in data.search_runs)
    state = f"is under way ({running} running)" if running else "was stopped and can go on"
    if not data.path:
        return f"The search for {name} {state}; no run of it is complete yet."
    lower, upper = data.path[-1].lower_percent, data.path[-1].upper_percent
    return (
        f"The search for {name} {state}: after {made} the earliest switch that keeps the accuracy"
        f" lies above {lower:g} % and is at most {upper:g} %."
    )


def _evaluation_headline(data: ReportData, evaluation: SearchInfo) -> str:
    """An evaluation has runs at given switch points, and neither bracket nor answer."""
    complete = sum(run.is_complete for run in data.search_runs)
    running = sum(run.outcome == "running" for run in data.search_runs)
    under_way = f", {running} under way" if running else ""
    return (
        f"An evaluation of a policy for {data.identity.name} at"
        f" {_points(stored_strategy(evaluation).grid())}, which looks for no switch point:"
        f" {counted(complete, 'run')} complete{under_way}."
    )


def key_figures(data: ReportData) -> list[tuple[str, str]]:
    """What counts most, as value and what it is; what is not known is left out."""
    answer, metric = data.answer, data.identity.decided_by
    if answer is None:
        figures = _known_so_far(data)
    else:
        figures = [(f"{answer.switch_percent:g} %", f"of the job in {data.first}")]
    gain = data.measured_speed_up
    if gain is not None:
        is_sure = gain.low is not None and gain.high is not None
        between = f" ({gain.low:.2f} to {gain.high:.2f})" if is_sure else ""
        value = f"{'' if is_sure else 'about '}{gain.value:.2f}"
        figures.append((value, f"times as fast as {data.first} alone{between}"))
    if answer is not None:
        figures += _promised(answer, data.first)
        if answer.mean_accuracy is not None:
            figures.append((metric.text(answer.mean_accuracy), metric.name))
    if data.cost is not None and data.cost.bsp_multiples is not None:
        about = "about " if data.cost.baseline_is_estimated else ""
        so_far = "" if data.is_found_here else " so far"
        cost = f"{about}{data.cost.bsp_multiples:.1f}"
        words = f"{data.first} trainings: the cost of the {data.what}{so_far}"
        figures.append((cost, words))
    recurrences = data.recurrences_to_pay_back
    if recurrences is not None:
        times = "never" if math.isinf(recurrences) else f"{math.ceil(recurrences):,}"
        figures.append((times, "trainings until the search has paid off"))
    return figures


def _promised(answer: TimingPolicy, first: str) -> list[tuple[str, str]]:
    """What may be expected of later runs, and how sure that is."""
    figures = []
    metric, usual = answer.decided_by, answer.baseline_kept_share
    mean = f"within {metric.with_unit(f'{answer.threshold:g}')} of {first}'s mean {metric.name}"
    if answer.is_for_guard and answer.expected_time is not None:
        words = f"of the time of {first} alone: a guarded training, failed switches included"
        figures.append((f"{answer.expected_time:.2f}", words))
    if answer.is_for_guard and answer.delivered_share is not None:
        words = f"of 100 guarded trainings deliver a model {mean}"
        figures.append((f"about {100 * answer.delivered_share:.0f}", words))
    if answer.kept_share is not None:
        own = "" if usual is None else f" ({100 * usual:.0f} with {first} alone)"
        bare = " with the bare switch" if answer.is_for_guard else ""
        words = f"of 100 runs{bare} stay {mean}{own}"
        figures.append((f"about {100 * answer.kept_share:.0f}", words))
    if answer.confidence is not None and answer.switch_percent < BASELINE_PERCENT:
        sure = "sure that it saves time" if answer.guarded else "sure that enough runs do"
        figures.append((sure_text(answer.confidence).removesuffix(" sure"), sure))
    return figures


def _known_so_far(data: ReportData) -> list[tuple[str, str]]:
    """Where there is no policy."""
    figures = [(f"{sum(run.is_complete for run in data.runs)}", "complete runs")]
    for one in data.switch_points:
        if one.candidate_percent == BASELINE_PERCENT and one.mean_accuracy is not None:
            metric = data.identity.decided_by
            words = f"{metric.name} with {data.first} alone"
            figures.append((metric.text(one.mean_accuracy), words))
    if data.baseline_seconds is not None:
        about = "about " if data.baseline_is_estimated else ""
        each = f"{about}{data.baseline_seconds:,.1f} s"
        figures.append((each, f"a training with {data.first} alone"))
    return figures


def _points(percents: Iterable[float]) -> str:
    """For example `100, 50, 25 %`."""
    return ", ".join(f"{percent:.6g}" for percent in sorted(percents, reverse=True)) + " %"


def accuracy_sentence(data: ReportData) -> str:
    """For accuracy against switch point."""
    metric, accepted = data.identity.decided_by, data.acceptance
    text = "Further left is an earlier switch, so a shorter training."
    if accepted is not None:
        better, worse = ("less", "plus") if metric.is_less_better else ("more", "less")
        text += (
            f" Accepted is {metric.text(accepted.least_accuracy)} or {better}: the target"
            f" {metric.text(accepted.target_accuracy)} {worse}"
            f" {metric.with_unit(f'{accepted.threshold:g}')} ({accepted.origin})."
        )
    if data.unplaced_runs:
        text += (
            f" Left out: {counted(data.unplaced_runs, 'complete run')}, imported without the switch"
            " point that they count for (candidate_percent)."
        )
    return text


def time_sentence(data: ReportData) -> str:
    """For the training times, and what the search cost."""
    words = []
    if data.baseline_seconds is not None:
        about = "about " if data.baseline_is_estimated else ""
        words.append(f"{data.first} alone takes {about}{data.baseline_seconds:,.1f} s")
    if data.policy_seconds is not None:
        words.append(f"a training with the policy {data.policy_seconds:,.1f} s")
    text = f"{', '.join(words)}." if words else "How long trainings take."
    if data.cost is not None and data.cost.paid_seconds:
        about = "about " if data.cost.baseline_is_estimated else ""
        multiples = data.cost.bsp_multiples
        unit = f", {about}{multiples:.1f} trainings with {data.first} alone" if multiples else ""
        text += f" The {data.what} trained for {data.cost.paid_seconds:,.1f} s{unit}."
    return text


def path_sentence(data: ReportData) -> str:
    """For the course of the search, and why it says what it says."""
    needed = [step for step in data.path if step.is_needed]
    extra = len(data.path) - len(needed)
    also = f", and for {counted(extra, 'speculative run')} in advance" if extra else ""
    asked = f"The search asked for {counted(len(needed), 'run')}{also}."
    if data.trouble is not None:
        return f"{asked} It cannot go on."
    last = needed[-1] if needed else data.path[-1]
    ends = f"above {last.lower_percent:g} % and at most {last.upper_percent:g} %"
    return f"{asked} The answer {'was' if data.is_found_here else 'could still lie'} {ends}."


def uses_figure_sentence(data: ReportData) -> str:
    """For the later runs."""
    kept = sum(use.kept for use in data.uses)
    name = data.identity.decided_by.name
    return f"{kept} of {counted(len(data.uses), 'later run')} kept the {name}."


_MOST_ROWS = 1000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as people read them.

    Attributes:
        columns: Their names; none where the first cell of each row is its name.
        left_out: Rows before the first one that is shown.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


def tables_of(data: ReportData) -> list[Table]:
    """All that have a row, in the order of the page."""
    make = (
        policy_table,
        evidence_table,
        version_table,
        search_table,
        further_table,
        run_table,
        identity_table,
    )
    return [table for one in make if (table := one(data)).rows]


def _facts(title: str, facts: Iterable[tuple[str, object]]) -> Table:
    """A row for each fact that is known."""
    rows = tuple((name, str(value)) for name, value in facts if value is not None)
    return Table(title, (), rows)


def _table(title: str, items: Sequence[_T], columns: Mapping[str, Callable[[_T], str]]) -> Table:
    """A row for each item, at most the last 1,000; `columns` says how its cells read."""
    shown = items[-_MOST_ROWS:]
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in shown)
    return Table(title, tuple(columns), rows, len(items) - len(rows))


def policy_table(data: ReportData) -> Table:
    """The policy, fact by fact."""
    entry = data.policy
    if entry is None:
        return _facts("Policy", [])
    found, metric = entry.policy, entry.policy.decided_by
    return _facts(
        "Policy",
        [
            ("version", f"{found.version} (aliases: {', '.join(entry.aliases) or NONE})"),
            ("switch at", percent_text(found.switch_percent)),
            (f"target {metric.name}", metric.text(found.target_accuracy)),
            ("threshold", metric.with_unit(f"{found.threshold:g}")),
            ("found by", f"{found.strategy}, {counted(len(found.evidence), 'run')}"),
            ("search", found.study),
            ("found for", guard_text(found)),
            ("kept", kept_text(found) or NONE),
            ("expected", expected_time_text(found)),
            ("sure", NONE if found.confidence is None else f"{100 * found.confidence:.3g} %"),
            ("created", found.created_at),
            ("imported", entry.imported_at),
        ],
    )


def identity_table(data: ReportData) -> Table:
    """What the job is."""
    job = data.identity
    return _facts(
        "Job",
        [
            ("workload", job.name),
            ("loaded from", data.reference),
            ("fingerprint", job.fingerprint),
            ("simulated as well", named_jobs(data.namesakes) or None),
            ("cluster", job.cluster.partition(",")[0]),
            ("protocols", job.pair),
            ("length", f"{job.total_worker_steps:,} worker-steps"),
            ("data set", job.data_set),
            ("model", job.model),
            ("loss", job.loss),
            ("optimizer", job.optimizer),
            ("batch size of a worker", job.batch_size),
            ("learning rate of a worker", job.learning_rate),
            ("decays", _decays(job.learning_rate_boundaries)),
            ("compared by", job.decided_by.axis_title),
            ("that is", None if job.metric == job.decided_by.name else job.metric),
            ("evaluated every", _steps(job.evaluation_interval_worker_steps)),
            ("conditions", run_conditions_text(data.conditions) or NONE),
            ("software", ", ".join(f"{n} {v}" for n, v in sorted(data.software.items())) or None),
            ("database", data.place),
            ("read at", _moment(data.read_at)),
        ],
    )


def version_table(data: ReportData) -> Table:
    """All versions of the policy, newest first."""
    metric = data.identity.decided_by
    return _table(
        "Versions of the policy",
        data.versions,
        {
            "version": lambda entry: str(entry.policy.version),
            "aliases": lambda entry: ", ".join(entry.aliases) or NONE,
            "switch at": lambda entry: percent_text(entry.policy.switch_percent),
            metric.name: lambda entry: accuracy_text(entry.policy.mean_accuracy, metric),
            "times as fast (90 %)": lambda entry: times_text(speed_up_of(entry.policy)),
            "used": lambda entry: uses_text(data.use_summaries[entry.policy.version]),
            "found by": lambda entry: (
                entry.policy.strategy + (" (imported)" if entry.imported_at else "")
            ),
            "created": lambda entry: entry.policy.created_at[:19],
        },
    )


def evidence_table(data: ReportData) -> Table:
    """The runs that the policy rests on, with whether they are in this database."""
    metric = data.identity.decided_by
    runs = data.answer.evidence if data.answer else ()
    return _table(
        "Runs that the policy rests on",
        list(zip(runs, data.evidence, strict=True)),
        {
            "trial": lambda row: str(row[0].trial_number),
            "switch at": lambda row: percent_text(row[0].switch_percent),
            "replicate": lambda row: str(row[0].replicate),
            metric.name: lambda row: (
                "diverged" if row[0].diverged else metric.text(row[0].converged_accuracy)
            ),
            "seconds": lambda row: seconds_text(row[0].training_seconds),
            "in this database": lambda row: (
                NONE if row[1].trial_id is None else "yes" if row[1].agrees else "other results"
            ),
        },
    )


def use_table(data: ReportData) -> Table:
    """The later runs with the policy, of all its versions."""
    metric = data.identity.decided_by
    return _table(
        "Later runs with the policy",
        data.uses,
        {
            "ended": lambda use: _moment(use.ended_at),
            "version": lambda use: str(use.policy_version),
            "switch at": lambda use: percent_text(use.switch_percent),
            "seed": lambda use: str(use.seed),
            metric.name: lambda use: "diverged" if use.diverged else metric.text(use.accuracy),
            "kept": lambda use: "yes" if use.kept else "no",
            "seconds": lambda use: seconds_text(use.training_seconds),
            "times as fast": lambda use: value_text(use.speed_up, ".2f"),
            "guard": lambda use: use.guard_alarm or use.guard,
            "in vain s": lambda use: seconds_text(use.guard_lost_seconds),
            "held": lambda use: percent_text(use.held_percent),
            "under": lambda use: (
                conditions_text(use.online, use.switch_mechanism, use.injections) or NONE
            ),
        },
    )


def search_table(data: ReportData) -> Table:
    """All searches and evaluations of the job."""
    shown = data.search and data.search.study
    return _table(
        "Searches and evaluations",
        data.searches,
        {
            "search": lambda one: one.study + (" (shown)" if one.study == shown else ""),
            "strategy": lambda one: one.strategy,
            "trainer": lambda one: one.trainer,
            "complete": lambda one: str(one.completed_runs),
            "failed": lambda one: str(one.failed_runs),
            "cancelled": lambda one: str(one.cancelled_runs),
            "running": lambda one: str(one.running_runs),
            "training s": lambda one: seconds_text(one.paid_seconds),
            "wall time s": lambda one: seconds_text(one.wall_seconds),
            "version": lambda one: value_text(one.policy_version, "d"),
        },
    )


def run_table(data: ReportData) -> Table:
    """All runs of the job."""
    metric = data.identity.decided_by
    return _table(
        "All runs of this job",
        data.runs,
        {
            "run": lambda run: run.name,
            "switch at": lambda run: percent_text(run.trial.switch_percent),
            "replicate": lambda run: str(run.trial.replicate),
            "seed": lambda run: value_text(run.trial.seed, "d"),
            "end": lambda run: run.outcome + (" (speculative)" if run.trial.speculative else ""),
            metric.name: lambda run: accuracy_text(
                run.trial.converged_accuracy if run.is_sound else None, metric
            ),
            "seconds": lambda run: seconds_text(run.trial.training_seconds),
            "paid s": lambda run: seconds_text(run.trial.paid_seconds),
            "began": lambda run: _moment(run.trial.started_at),
            "on": lambda run: run.trial.host or NONE,
            "under": lambda run: run_conditions_text(run.trial.conditions) or NONE,
            "failure": lambda run: run.trial.failure or NONE,
            "search": lambda run: run.trial.study or NONE,
        },
    )


def further_table(data: ReportData) -> Table:
    """Each further metric at each switch point: the mean of its sound runs' last five tests."""
    found: dict[float, list[dict[str, float]]] = {}
    for run in data.compared:
        tests = run.whole.evaluations[-CONVERGENCE_EVALUATIONS:] if run.whole is not None else ()
        known = [dict(one.further) for one in tests]
        if run.is_sound and any(known):
            means = {name: _mean(known, name) for one in known for name in one}
            found.setdefault(run.trial.candidate_percent or 0.0, []).append(means)
    names = dict.fromkeys(name for runs in found.values() for run in runs for name in run)
    return _table(
        "Further metrics, which decide nothing",
        sorted(found, reverse=True),
        {
            "switch at": percent_text,
            "runs": lambda percent: str(len(found[percent])),
            **{name: _cell_of(name, found) for name in names},
        },
    )


def _cell_of(name: str, found: Mapping[float, list[dict[str, float]]]) -> Callable[[float], str]:
    def cell(percent: float) -> str:
        runs = [run for run in found[percent] if name in run]
        return value_text(_mean(runs, name) if runs else None, ".4g")

    return cell


def _mean(known: Iterable[Mapping[str, float]], name: str) -> float:
    return statistics.fmean(one[name] for one in known if name in one)


def _decays(boundaries: tuple[tuple[int, float], ...] | None) -> str | None:
    if boundaries is None:
        return None
    return "; ".join(f"{factor:g} times from {step:,} on" for step, factor in boundaries) or "none"


def _steps(worker_steps: int | None) -> str | None:
    return None if worker_steps is None else f"{worker_steps:,} worker-steps"


def _moment(moment: datetime | None) -> str:
    return NONE if moment is None else moment.isoformat(timespec="seconds")


_COMMAND = "command"
# What a search has to be given again, for nobody recorded it.
_OWN_OPTIONS = {
    _COMMAND: "--command, --total-steps and what else the command needs",
    REPLAY: "--recordings",
}
_OTHER_OPTIONS = "options of the trainer itself, such as --profile or --launcher"
_HIDDEN = "***"  # a password


@dataclass(frozen=True)
class Section:
    """A heading and what is under it.

    Attributes:
        name: Short, for links.
        words: What the figure says; where there is none, why.
        points: What else there is to say, sentence by sentence.
    """

    name: str
    title: str
    words: str
    figure: Drawing | None
    points: tuple[str, ...] = ()
    table: Table | None = None


_BEGINNING = b"<!DOCTYPE html>"


def write_page(page: str, path: Path) -> None:
    """Writes a page into a file, where nothing or an earlier report is.

    Raises UserError where something else is there, or the file cannot be written.
    """
    with whole_file(path, replaces=(_BEGINNING,)) as file:
        file.write(page.encode())


def page_of(data: ReportData) -> str:
    """The page, which opens in any browser; text of users is shown, never interpreted.

    Raises UserError where matplotlib or jinja2 is missing.
    """
    try:
        import matplotlib  # noqa: F401 (or each section would say that it is missing)
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise UserError(
            f"a report needs {error.name or 'matplotlib'}, which is missing;"
            " run: pip install 'syncswitch[report]'"
        ) from error
    environment = Environment(
        loader=PackageLoader("syncswitch.searcher.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    name = data.identity.name
    return environment.get_template("page.html.jinja").render(
        title=f"{name}: when to switch",
        heading=f"{name}, {data.identity.cluster}",
        headline=headline(data),
        key_figures=key_figures(data),
        command=_use(data),
        sections=sections_of(data),
        tables=tables_of(data),
        last_command=_search_again(data),
        made_from=f"{data.place} at {data.read_at.isoformat(timespec='seconds')}",
    )


def sections_of(data: ReportData) -> list[Section]:
    """Those with a figure, in the order of the page."""
    metric = data.identity.decided_by
    accuracy = f"{metric.name[:1].upper()}{metric.name[1:]}"
    why = why_sentences(data.why, data.first, metric) if data.why is not None else []
    uses = use_table(data)
    return [
        _section(
            data,
            "accuracy",
            f"{accuracy} against switch point",
            figures.accuracy_by_switch,
            accuracy_sentence,
        ),
        _section(data, "time", "Training time", figures.training_time, time_sentence),
        _section(
            data,
            "search",
            "The course of the search",
            figures.search_path,
            path_sentence,
            points=tuple(why),
        ),
        _section(
            data,
            "curves",
            f"{accuracy} over time",
            figures.accuracy_over_time,
            lambda _: "As it trains; the mark on a thick line is the switch.",
        ),
        _section(
            data,
            "uses",
            "Later runs with the policy",
            figures.later_uses,
            uses_figure_sentence,
            table=uses if uses.rows else None,
        ),
    ]


def _section(
    data: ReportData,
    name: str,
    title: str,
    draw: Callable[[ReportData], Drawing],
    say: Callable[[ReportData], str],
    points: tuple[str, ...] = (),
    table: Table | None = None,
) -> Section:
    try:
        figure = draw(data)
        return Section(name, title, say(data), figure, points, table)
    except UserError as nothing:
        text = str(nothing)
        return Section(name, title, f"{text[0].upper()}{text[1:]}.", None, points, table)


def _use(data: ReportData) -> tuple[str, str] | None:
    """What to do with this, in words and as a command line."""
    if data.policy is not None:
        return _use_of(data.policy, data)
    if data.trouble is not None:
        return None
    return _replay(data) if data.search is None else _search_again(data, "Go on with it")


def _replay(data: ReportData) -> tuple[str, str] | None:
    """A search among the recorded runs; None where they do not suffice."""
    replays = {one.study for one in data.searches if one.trainer == REPLAY}
    recorded = {
        run.trial.candidate_percent
        for run in data.runs
        if run.whole is not None
        and run.trial.candidate_percent is not None
        and run.trial.conditions.is_undisturbed
        and run.trial.study not in replays
    }
    line_words = replay_words(data.identity, recorded)
    if line_words is None:
        return None
    also = "nothing is trained"
    if _HIDDEN in data.place:
        also += "; add --recordings with the URL of this database"
    else:
        line_words += ["--recordings", data.place]
    line = shlex.join([*line_words, "--storage", "sqlite:///replayed.db"])
    return f"Search among the recorded runs ({also}):", line


def _use_of(entry: PolicyEntry, data: ReportData) -> tuple[str, str]:
    job, policy = data.identity, entry.policy
    version = None if CURRENT in entry.aliases else policy.version
    line_words = use_words(job, data.reference, data.reference, version, data.conditions)
    line = _line(line_words, data)
    if data.search is not None and data.search.trainer == _COMMAND:
        step = percent_to_worker_steps(policy.switch_percent, job.total_worker_steps)
        return f"Give your training command switch step {step:,}. The policy as a file:", line
    if job.simulated_cluster is not None:
        begin = "A simulated cluster found it. The first guarded run on a real one begins from it"
        return f"{begin}; to compare before that:", line
    return "Train with it:" if line_words[
        0
    ] == "syncswitch-run" else "Take it along as a file:", line


def _search_again(
    data: ReportData, what: str = "To make the search again, or to go on with it"
) -> tuple[str, str] | None:
    """Why and how; None where there is no search that `run` makes."""
    if data.search is None:
        return None
    line_words = search_words(data.identity, data.reference, data.search, data.conditions)
    if line_words is None:
        return None
    own = _OWN_OPTIONS.get(data.search.trainer, _OTHER_OPTIONS)
    return f"{what}; give again what is not recorded ({own}):", _line(line_words, data)


def _line(line: list[str], data: ReportData) -> str:
    """For a shell; with the database, unless it is the usual one or needs a password."""
    if data.place != DEFAULT_URL and _HIDDEN not in data.place:
        line = [*line, "--storage", data.place]
    return shlex.join(line)
