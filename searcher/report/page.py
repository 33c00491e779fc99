"""The report as one HTML page that needs nothing else, neither a network nor a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from syncswitch.searcher.command_lines import search_command, use_command
from syncswitch.searcher.report import figures
from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.drawing import Drawing
from syncswitch.searcher.search.explanation import why_sentences
from syncswitch.searcher.search.observations import state_of
from syncswitch.searcher.search.policy_words import (
    guard_text,
    kept_text,
    policy_sentences,
    probability_text,
    times_text,
    uses_sentence,
    uses_text,
)
from syncswitch.searcher.speed_up import SpeedUp, speed_up_of
from syncswitch.searcher.words import (
    NONE,
    UNJUDGED,
    accuracy_text,
    capitalized,
    counted,
    momentum_text,
    percent_text,
    run_conditions_text,
    sentence,
)
from syncswitch.storage.database.defaults import DEFAULT_URL
from syncswitch.storage.errors import Command, Run, Set, UserError, Words
from syncswitch.storage.files import whole_file
from syncswitch.storage.policies.registry import CURRENT
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialState
from syncswitch.trainers.job.schedule import percent_to_worker_steps
from syncswitch.trainers.replay import REPLAY


def headline(data: ReportData, words: Words) -> str:
    """The policy in one sentence; without one, how far its search is."""
    name = data.identity.name
    if data.answer is not None:
        # The figures below it give the promise.
        said, uses = policy_sentences(data.answer, data.identity), data.use_summaries
        of_it = uses[data.answer.version]
        return f"{said} {uses_sentence(of_it)}" if of_it.uses else said
    if data.search is None:
        complete = sum(run.is_complete for run in data.runs)
        return f"{counted(complete, 'run')} of {name} recorded; no search for its policy yet."
    if data.trouble is not None:
        return f"The search for {name} has no answer: {words.say(data.trouble)}."
    mine = [run for run in data.runs if run.trial.origin.study == data.search.study]
    running = sum(state_of(run.trial) == TrialState.RUNNING for run in mine)
    state = f"is under way ({running} running)" if running else "was stopped and can be continued"
    if not data.path:
        return f"The search for {name} {state}; no run of it is complete yet."
    lower, upper = data.path[-1].lower_percent, data.path[-1].upper_percent
    return (
        f"The search for {name} {state}: after {counted(len(data.path), 'run')} the earliest switch"
        f" that keeps the accuracy lies above {lower:g} % and is at most {upper:g} %."
    )


def key_figures(data: ReportData) -> list[tuple[str, str]]:
    """The most important figures, each a value and its meaning; unknown ones are left out."""
    answer, metric, gain = data.answer, data.identity.decided_by, data.speed_up
    figures = []
    if answer is None:
        figures += _known_so_far(data)
    else:
        figures.append((f"{answer.switch_percent:g} %", f"of the job in {data.first}"))
    if gain is not None:
        is_sure = gain.low is not None and gain.high is not None
        between = f" ({gain.low:.2f} to {gain.high:.2f})" if is_sure else ""
        value = f"{'' if is_sure else 'about '}{gain.value:.2f}"
        figures.append((value, f"times as fast as {data.first} alone{between}"))
    if answer is not None:
        figures += _promised(answer, data.first, gain)
        if answer.measured.mean_accuracy is not None:
            figures.append((metric.text(answer.measured.mean_accuracy), metric.name))
    if data.cost is not None and data.cost.bsp_multiples is not None:
        about = "about " if data.cost.baseline_is_estimated else ""
        so_far = "" if data.is_found_here else " so far"
        words = f"trainings with {data.first} alone: the cost of the search{so_far}"
        figures.append((f"{about}{data.cost.bsp_multiples:.1f}", words))
    recurrences = data.recurrences_to_pay_back
    if recurrences is not None:
        times = "never" if math.isinf(recurrences) else f"{math.ceil(recurrences):,}"
        figures.append((times, "runs until the search has paid off"))
    return figures


def _promised(answer: TimingPolicy, first: str, gain: SpeedUp | None) -> list[tuple[str, str]]:
    figures = []
    metric, usual = answer.job.metric, answer.promise.baseline_kept_share
    mean = f"within {metric.with_unit(f'{answer.threshold:g}')} of {first}'s mean {metric.name}"
    if answer.is_for_guard and answer.promise.expected_time is not None:
        words = f"of the time of {first} alone: a guarded run, failed switches included"
        figures.append((f"{answer.promise.expected_time:.2f}", words))
    if answer.is_for_guard and answer.promise.delivered_share is not None:
        words = f"of 100 guarded runs deliver a model {mean}"
        figures.append((f"about {100 * answer.promise.delivered_share:.0f}", words))
    if answer.promise.kept_share is not None:
        own = "" if usual is None else f" ({100 * usual:.0f} with {first} alone)"
        bare = " without a guard" if answer.is_for_guard else ""
        words = f"of 100 runs{bare} stay {mean}{own}"
        figures.append((f"about {100 * answer.promise.kept_share:.0f}", words))
    may_lose = answer.guarded and gain is not None and (gain.low or gain.value) <= 1
    sure, has_switch = answer.promise.confidence, answer.switch_percent < BASELINE_PERCENT
    if sure is not None and has_switch and not may_lose:
        words = "it saves time" if answer.guarded else "enough runs do"
        figures.append((probability_text(sure), f"probability that {words}"))
    return figures


def _known_so_far(data: ReportData) -> list[tuple[str, str]]:
    figures = [(f"{sum(run.is_complete for run in data.runs)}", "complete runs")]
    accuracy = None if data.baseline is None else data.baseline.accuracy
    if accuracy is not None:
        metric = data.identity.decided_by
        figures.append((metric.text(accuracy.value), f"{metric.name} with {data.first} alone"))
    if data.baseline_seconds is not None:
        about = "about " if data.baseline_is_estimated else ""
        each = f"{about}{data.baseline_seconds:,.1f} s"
        figures.append((each, f"a training with {data.first} alone"))
    return figures


def accuracy_sentence(data: ReportData) -> str:
    """The sentence above accuracy against switch point."""
    metric, accepted = data.identity.decided_by, data.acceptance
    text = "Further left is an earlier switch, so a shorter training."
    if accepted is not None and accepted.threshold:
        text += (
            f" Accepted is {metric.text(accepted.least_accuracy)} or {metric.words.better}: up"
            f" to {metric.with_unit(f'{accepted.threshold:g}')} {metric.words.worse} than the"
            f" target, {metric.text(accepted.target_accuracy)} ({accepted.origin})."
        )
    if data.unplaced_runs:
        text += (
            f" Left out: {counted(data.unplaced_runs, 'complete run')}, imported without the switch"
            " point to count for (candidate_percent)."
        )
    return text


def time_sentence(data: ReportData) -> str:
    """The sentence above the training times, with the cost of the search."""
    words = []
    if data.baseline_seconds is not None:
        about = "about " if data.baseline_is_estimated else ""
        words.append(f"{data.first} alone takes {about}{data.baseline_seconds:,.1f} s")
    if data.policy_seconds is not None:
        words.append(f"a training with the policy {data.policy_seconds:,.1f} s")
    text = sentence(", ".join(words) or "the training times of the switch points")
    if data.cost is not None and data.cost.paid_seconds:
        about = "about " if data.cost.baseline_is_estimated else ""
        multiples = data.cost.bsp_multiples
        unit = f", {about}{multiples:.1f} trainings with {data.first} alone" if multiples else ""
        text += f" The search trained for {data.cost.paid_seconds:,.1f} s{unit}."
    return text


def path_sentence(data: ReportData) -> str:
    """The sentence above the course of the search."""
    needed = [step for step in data.path if step.is_needed]
    extra = len(data.path) - len(needed)
    also = f", and for {counted(extra, 'speculative run')} in advance" if extra else ""
    asked = f"The search asked for {counted(len(needed), 'run')}{also}."
    if data.trouble is not None:
        return f"{asked} It cannot be continued."
    last = needed[-1] if needed else data.path[-1]
    ends = f"above {last.lower_percent:g} % and at most {last.upper_percent:g} %"
    return f"{asked} The answer {'was' if data.is_found_here else 'could still lie'} {ends}."


def uses_figure_sentence(data: ReportData) -> str:
    """The sentence above the later runs."""
    kept = sum(bool(use.result.kept) for use in data.uses)
    tried = sum(bool(use.guard.failed_percents) for use in data.uses)
    name = data.identity.decided_by.name
    text = f"{kept} of {counted(len(data.uses), 'later run')} kept the {name}."
    if all(use.result.kept is None for use in data.uses):
        text = UNJUDGED
    if tried:
        text += (
            f" In {tried} of them a switch failed: the run went back to it and on in"
            f" {data.first}, to a later switch or to the end."
        )
    return text


def version_rows(data: ReportData) -> list[Mapping[str, str]]:
    """A row for each version of the policy, newest first; empty without a policy."""
    metric = data.identity.decided_by
    return [
        {
            "version": ", ".join([str(entry.policy.version), *entry.aliases]),
            "switch at": percent_text(entry.policy.switch_percent),
            metric.name: accuracy_text(entry.policy.measured.mean_accuracy, metric),
            "times as fast (90 %)": times_text(speed_up_of(entry.policy)),
            "found for": guard_text(entry.policy),
            "kept": kept_text(entry.policy) or NONE,
            "used": uses_text(data.use_summaries[entry.policy.version]),
            "found by": f"{entry.policy.strategy}, {entry.policy.study}",
            "created": entry.policy.created_at[:10],
        }
        for entry in data.versions
    ]


def job_facts(data: ReportData) -> list[tuple[str, str]]:
    """The job, fact by fact."""
    job, recipe = data.identity, data.identity.recipe
    interval, described = recipe.evaluation_interval_worker_steps, job.metric.description
    boundaries = recipe.learning_rate_boundaries or ()
    decays = [f"{factor:g} times from {step:,} on" for step, factor in boundaries]
    facts: list[tuple[str, object]] = [
        ("workload", job.name),
        ("loaded from", data.reference),
        ("fingerprint", job.fingerprint),
        ("cluster", job.size),
        ("protocols", job.pair),
        ("after the switch", momentum_text(job.momentum_after_switch)),
        ("length", job.length),
        ("data set", recipe.data_set),
        ("model", recipe.model),
        ("loss", recipe.loss),
        ("optimizer", recipe.optimizer),
        ("batch size of a worker", recipe.batch_size),
        ("learning rate of a worker", recipe.learning_rate),
        ("decays", "; ".join(decays) or None),
        ("compared by", job.decided_by.axis_title),
        ("that is", None if described == job.decided_by.name else described),
        ("evaluated every", None if interval is None else f"{interval:,} {job.step_noun}s"),
        ("conditions", run_conditions_text(data.conditions) or None),
        ("software", ", ".join(f"{n} {v}" for n, v in sorted(data.software.items())) or None),
    ]
    return [(name, str(value)) for name, value in facts if value is not None]


_COMMAND = "command"
# Options that nobody recorded, so a search has to be given them again.
_OWN_OPTIONS = {
    _COMMAND: "the command, and how its results are read",
    REPLAY: "the database of the recorded runs",
}
_OTHER_OPTIONS = "options of the trainer itself, such as its profile or its launcher"
_HIDDEN = "***"  # a password


@dataclass(frozen=True)
class Section:
    """A heading with a figure under it; where nothing was measured, `words` say why.

    `points` are further sentences below the figure.
    """

    name: str
    title: str
    words: str
    figure: Drawing | None
    points: tuple[str, ...] = ()


# No other page begins so.
_BEGINNING = b"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="syncswitch">
"""


def write_page(page: str, path: Path) -> None:
    """Writes a page to a file; raises UserError if something that is no report is there."""
    with whole_file(path, replaces=(_BEGINNING,)) as file:
        file.write(page.encode())


def page_of(data: ReportData, words: Words) -> str:
    """The HTML page, which opens in any browser; text of users is shown, never interpreted.

    Commands are shown in these words.

    Raises UserError if matplotlib or jinja2 is missing.
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
        headline=headline(data, words),
        key_figures=key_figures(data),
        command=_use(data, words),
        sections=sections_of(data),
        versions=version_rows(data),
        facts=job_facts(data),
        last_command=_search_again(data, words),
        made_from=f"{data.place} at {data.read_at:%Y-%m-%d %H:%M:%S} UTC",
    )


def sections_of(data: ReportData) -> list[Section]:
    """The sections with a figure, in the order of the page."""
    metric = data.identity.decided_by
    accuracy = capitalized(metric.name)
    second = data.identity.second_protocol
    why = why_sentences(data.why, data.first, metric, second) if data.why is not None else []
    switch_mark = "The mark on a thick line is its switch."
    makers: dict[tuple[str, str], tuple[Callable[[ReportData], Drawing], Callable[..., str]]] = {
        ("accuracy", f"{accuracy} against switch point"): (
            figures.accuracy_by_switch,
            accuracy_sentence,
        ),
        ("time", "Training time"): (figures.training_time, time_sentence),
        ("search", "The course of the search"): (figures.search_path, path_sentence),
        ("curves", f"{accuracy} over time"): (figures.accuracy_over_time, lambda _: switch_mark),
        ("uses", "Later runs with the policy"): (figures.later_uses, uses_figure_sentence),
    }
    sections = []
    # A job that is learnt from its runs has no search: its later runs say why.
    teller = "uses" if data.search is None and data.policy is not None else "search"
    for (name, title), (draw, say) in makers.items():
        if name == "search" and teller != "search":
            continue
        figure = None
        try:
            figure = draw(data)
            words = say(data)
        except UserError as nothing:
            words = sentence(str(nothing))
        points = tuple(why) if name == teller else ()
        sections.append(Section(name, title, words, figure, points))
    return sections


def _use(data: ReportData, words: Words) -> tuple[str, str] | None:
    if data.policy is None:
        return None if data.trouble is not None else _search_again(data, words, "Go on with it")
    job, policy = data.identity, data.policy.policy
    version = None if CURRENT in data.policy.aliases else policy.version
    use = use_command(job, data.reference, data.reference, version, data.conditions)
    line = words.command(_at_place(use, data))
    if job.is_command:
        step = percent_to_worker_steps(policy.switch_percent, job.total_worker_steps)
        own = f"give again what is not recorded ({_OWN_OPTIONS[_COMMAND]})"
        return f"Train with it, which switches at step {step:,}; {own}:", line
    if job.simulated_cluster is not None:
        begin = "A simulated cluster found it. The first guarded run on a real one begins from it"
        return f"{begin}; to compare before that:", line
    is_run = use.command is Command.TRAIN
    return "Train with it:" if is_run else "Take it along as a file:", line


def _search_again(
    data: ReportData, words: Words, what: str = "To repeat or continue the search"
) -> tuple[str, str] | None:
    """The command line of the search that is shown, in words and as a line; None without one."""
    if data.search is None:
        return None
    again = search_command(data.identity, data.reference, data.search, data.conditions)
    own = _OWN_OPTIONS.get(data.search.trainer, _OTHER_OPTIONS)
    return f"{what}; give again what is not recorded ({own}):", words.command(
        _at_place(again, data)
    )


def _at_place(run: Run, data: ReportData) -> Run:
    """A command with its database, unless that is the usual one or needs a password."""
    if data.place == DEFAULT_URL or _HIDDEN in data.place:
        return run
    return replace(run, arguments=(*run.arguments, Set("storage", data.place)))
