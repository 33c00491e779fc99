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
    policy_sentences,
    probability_text,
    times_text,
    uses_sentence,
)
from syncswitch.searcher.speed_up import speed_up_of
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
from syncswitch.storage.errors import Command, CommandHint, OptionHint, UserError, Words
from syncswitch.storage.files import whole_file
from syncswitch.storage.policies.registry import CURRENT
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialState
from syncswitch.storage.uses.summary import UseSummary
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


@dataclass(frozen=True)
class KeyFigure:
    """A value in large letters, its meaning, and in small ones how certain it is."""

    value: str
    meaning: str
    detail: str = ""


def key_figures(data: ReportData) -> list[KeyFigure]:
    """The figures that decide: time, quality and cost; unknown ones are left out."""
    if data.answer is None:
        return [*_known_so_far(data), *_cost(data)]
    return [*_time(data, data.answer), *_quality(data, data.answer), *_cost(data)]


def _time(data: ReportData, answer: TimingPolicy) -> list[KeyFigure]:
    gain, expected, sure = data.speed_up, answer.promise.expected_time, answer.promise.confidence
    may_lose = gain is not None and (gain.low or gain.value) <= 1
    has_switch = answer.switch_percent < BASELINE_PERCENT
    details = []
    if answer.guarded and sure is not None and has_switch and not may_lose:
        details.append(f"probability of saving time: {probability_text(sure)}")
    if answer.is_for_guard and expected is not None:
        words = f"of the time of {data.first} alone, failed switches included"
        return [KeyFigure(f"{expected:.2f}", words, ", ".join(details))]
    if gain is None:
        return []
    is_known = gain.low is not None and gain.high is not None
    if is_known:
        details.insert(0, f"{gain.low:.2f} to {gain.high:.2f}")
    value = f"{'' if is_known else 'about '}{gain.value:.2f}"
    return [KeyFigure(value, f"times as fast as {data.first} alone", ", ".join(details))]


def _quality(data: ReportData, answer: TimingPolicy) -> list[KeyFigure]:
    metric, promise = answer.job.metric, answer.promise
    usual, kept, delivered = (
        promise.baseline_kept_share,
        promise.kept_share,
        promise.delivered_share,
    )
    loss = metric.with_unit(f"{answer.threshold:g}")
    within = f"end within {loss} of {data.first}'s mean {metric.name}"
    others = [] if usual is None else [f"{100 * usual:.0f} with {data.first} alone"]
    if answer.is_for_guard and delivered is not None:
        if kept is not None:
            others.insert(0, f"{100 * kept:.0f} without a guard")
        share = f"about {100 * delivered:.0f} of 100"
        return [KeyFigure(share, f"guarded runs {within}", ", ".join(others))]
    if kept is not None:
        if promise.confidence is not None and not answer.guarded:
            others.append(f"probability that enough do: {probability_text(promise.confidence)}")
        return [KeyFigure(f"about {100 * kept:.0f} of 100", f"runs {within}", ", ".join(others))]
    if answer.measured.mean_accuracy is None:
        return []
    return [KeyFigure(metric.text(answer.measured.mean_accuracy), metric.name)]


def _cost(data: ReportData) -> list[KeyFigure]:
    if data.cost is None or not data.cost.paid_seconds:
        return []
    seconds, multiples = f"{data.cost.paid_seconds:,.1f} s", data.cost.bsp_multiples
    so_far = "" if data.is_found_here else " so far"
    if multiples is None:
        return [KeyFigure(seconds, f"of training: the cost of the search{so_far}")]
    about = "about " if data.cost.baseline_is_estimated else ""
    words = f"trainings with {data.first} alone: the cost of the search{so_far}"
    times, paid_back = data.recurrences_to_pay_back, ""
    if times is not None:
        paid_back = ", never paid back"
        if math.isfinite(times):
            paid_back = f", paid back by {counted(math.ceil(times), 'run')} with the policy"
    detail = f"{seconds} of training{paid_back}"
    return [KeyFigure(f"{about}{multiples:.1f}", words, detail)]


def _known_so_far(data: ReportData) -> list[KeyFigure]:
    complete = sum(run.is_complete for run in data.runs)
    figures = [KeyFigure(f"{complete:,}", "complete run" + "s" * (complete != 1))]
    accuracy = None if data.baseline is None else data.baseline.accuracy
    if accuracy is not None:
        metric, seconds = data.identity.metric, data.baseline_seconds
        about = "about " if data.baseline_is_estimated else ""
        each = "" if seconds is None else f"in {about}{seconds:,.1f} s of training"
        value = metric.text(accuracy.value)
        figures.append(KeyFigure(value, f"{metric.name} with {data.first} alone", each))
    return figures


def accuracy_sentence(data: ReportData) -> str:
    """The sentence above accuracy against switch point."""
    metric, accepted = data.identity.metric, data.acceptance
    text = "Further left is an earlier switch, so a shorter training."
    if accepted is not None and accepted.goal.threshold:
        text += (
            f" Accepted is {metric.text(accepted.goal.least_accuracy)} or {metric.words.better}: up"
            f" to {metric.with_unit(f'{accepted.goal.threshold:g}')} {metric.words.worse} than the"
            f" target, {metric.text(accepted.goal.accuracy)} ({accepted.origin})."
        )
    if data.unplaced_runs:
        text += (
            f" Left out: {counted(data.unplaced_runs, 'complete run')}, imported without the switch"
            " point to count for (candidate_percent)."
        )
    return text


def time_sentence(data: ReportData) -> str:
    """The sentence above the training times; empty where none is known."""
    words = []
    if data.baseline_seconds is not None:
        about = "about " if data.baseline_is_estimated else ""
        words.append(f"{data.first} alone takes {about}{data.baseline_seconds:,.1f} s")
    if data.policy_seconds is not None:
        takes = "" if words else "takes "
        words.append(f"a training with the policy {takes}{data.policy_seconds:,.1f} s")
    return sentence(", ".join(words)) if words else ""


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
    name = data.identity.metric.name
    text = f"{kept} of {counted(len(data.uses), 'later run')} kept the {name}."
    if all(use.result.kept is None for use in data.uses):
        text = UNJUDGED
    if tried:
        text += (
            f" In {tried} of them a switch failed: the run went back to it and on in"
            f" {data.first}, to a later switch or to the end, or in another second phase."
        )
    return text


def version_rows(data: ReportData) -> list[Mapping[str, str]]:
    """A row for each version of the policy, newest first; empty if all is said of the only one."""
    if len(data.versions) < 2:
        return []
    metric = data.identity.metric
    return [
        {
            "version": ", ".join([str(entry.policy.version), *entry.aliases]),
            "switch at": percent_text(entry.policy.switch_percent),
            metric.name: accuracy_text(entry.policy.measured.mean_accuracy, metric),
            "times as fast": times_text(speed_up_of(entry.policy)),
            "later runs": _kept_of(data.use_summaries[entry.policy.version]),
            "created": entry.policy.created_at[:10],
        }
        for entry in data.versions
    ]


def _kept_of(summary: UseSummary) -> str:
    if not summary.uses:
        return NONE
    runs = f"{summary.uses:,}"
    return runs if summary.kept is None else f"{summary.kept:,} of {runs} kept"


def job_facts(data: ReportData) -> list[tuple[str, str]]:
    """The job, fact by fact."""
    job, recipe, answer = data.identity, data.identity.recipe, data.answer
    interval, described = recipe.evaluation_interval_worker_steps, job.described_metric.description
    boundaries = recipe.learning_rate_boundaries or ()
    decays = [f"{factor:g} times from {step:,} on" for step, factor in boundaries]
    facts: list[tuple[str, object]] = [
        ("loaded from", data.reference),
        ("fingerprint", job.fingerprint),
        (
            "policy",
            None if answer is None else f"version {answer.version}, for {guard_text(answer)}",
        ),
        ("found by", None if answer is None else f"{answer.strategy}, {answer.study}"),
        ("after the switch", momentum_text(job.momentum_after_switch)),
        ("length", job.length),
        ("data set", recipe.data_set),
        ("loss", recipe.loss),
        ("optimizer", recipe.optimizer),
        ("batch size of a worker", recipe.batch_size),
        ("learning rate of a worker", recipe.learning_rate),
        ("decays", "; ".join(decays) or None),
        ("compared by", job.metric.axis_title),
        ("that is", None if described == job.metric.name else described),
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
    """A heading, a sentence, and a figure or a list of points under it."""

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
            " run: pip install 'syncswitch[report]'",
            code="package-missing",
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
    sections, missing = sections_of(data)
    return environment.get_template("page.html.jinja").render(
        title=f"{name}: when to switch",
        heading=f"{name}, {data.identity.cluster}",
        headline=headline(data, words),
        key_figures=key_figures(data),
        command=_use(data, words),
        sections=sections,
        missing=missing,
        versions=version_rows(data),
        facts=job_facts(data),
        last_command=_search_again(data, words),
        made_from=f"{data.place} at {data.read_at:%Y-%m-%d %H:%M:%S} UTC",
    )


def sections_of(data: ReportData) -> tuple[list[Section], list[str]]:
    """The sections in the order of the page, and sentences that say why others are missing."""
    accuracy = capitalized(data.identity.metric.name)
    second = data.identity.second_protocol
    why: list[str] = []
    if data.why is not None:
        why = why_sentences(data.why, data.first, data.identity.metric, second)
    makers: dict[str, tuple[str, Callable[[ReportData], Drawing], Callable[[ReportData], str]]] = {
        "switches": (
            f"{accuracy} and time by switch point",
            figures.accuracy_by_switch,
            lambda data: f"{accuracy_sentence(data)} {time_sentence(data)}".rstrip(),
        ),
        "uses": ("Later runs with the policy", figures.later_uses, uses_figure_sentence),
        "search": ("The course of the search", figures.search_path, path_sentence),
        "curves": (
            f"{accuracy} over time",
            figures.accuracy_over_time,
            lambda _: "The mark on a thick line is its switch.",
        ),
    }
    sections, missing = [], []
    # A job that is learnt from its runs has no search.
    if data.search is None and data.policy is not None:
        del makers["search"]
    for name, (title, draw, say) in makers.items():
        try:
            figure = draw(data)
        except UserError as nothing:
            missing.append(sentence(str(nothing)))
        else:
            sections.append(Section(name, title, say(data), figure))
    if why:
        sections.append(Section("why", "What it rests on", "", None, tuple(why)))
    return sections, list(dict.fromkeys(missing))


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


def _at_place(run: CommandHint, data: ReportData) -> CommandHint:
    """A command with its database, unless that is the usual one or needs a password."""
    if data.place == DEFAULT_URL or _HIDDEN in data.place:
        return run
    return replace(run, arguments=(*run.arguments, OptionHint("storage", data.place)))
