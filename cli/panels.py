"""Help in panels: the most common options of a command in full, the others by name.

`--help-all` shows all of them in full.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from functools import partial
from typing import Any

import click
import cloup
from cloup.formatting import HelpSection, ensure_is_cloup_formatter

_USUAL = "Usual options"
_PANELS = {
    "The job": (
        *("workers", "protocols"),
        *("protocol", "cluster", "seed", "output", "online", "switch", "inject"),
    ),
    "When to switch": (
        *("policy", "policy_texts", "switch_at", "at", "strategy", "halvings", "runs", "threshold"),
        *("threshold_runs", "guarded"),
        *(
            "learn",
            "min_kept_share",
            "expected_runs",
            "switch_points",
            "baseline_runs",
            "least_runs",
            "budget",
        ),
        *("share_prefix", "early_stop", "target_accuracy", "target_runs"),
    ),
    "Forecast of the cost": ("dry_run", "first_seconds", "second_seconds"),
    "Interrupted runs": ("checkpoints", "checkpoint_every", "resume"),
    "Cluster": ("trainer", "launcher", "parameter_servers", "gpus_per_worker", "parallel_runs"),
    "Cluster in TF_CONFIG": ("open_network", "cluster_timeout", "server_grace"),
    "Ray cluster": ("ray_address", "cpus_per_worker", "cpus_per_ps", "ray_placement"),
    "Simulated, recorded runs": ("profile", "recordings"),
    "Your own training command": (
        *("command", "total_steps", "metric_file", "step_name", "metric_pattern", "metric_name"),
        *("metric_goal", "metric_unit", "timeout", "silence", "output_folder"),
    ),
    "Database, logs, output": ("storage_url", "as_json", "tensorboard", "mlflow"),
}
"""The parameters of each panel, for all commands that have panels."""


class PanelCommand(cloup.Command):
    """A command with so many options that its help has panels."""

    def __init__(
        self,
        *arguments: Any,
        usual: Iterable[str],
        params: Iterable[click.Parameter] = (),
        **named: Any,
    ) -> None:
        unused = {one.name: one for one in params}
        groups = {_USUAL: tuple(usual)} | _PANELS
        ordered: list[click.Parameter] = []
        for title, names in groups.items():
            group = cloup.OptionGroup(title)
            for name in names:
                if name in unused:
                    option: Any = unused.pop(name)
                    option.group = group
                    ordered.append(option)
        arguments_first = [one for one in unused.values() if isinstance(one, click.Argument)]
        rest = [one for one in unused.values() if not isinstance(one, click.Argument)]
        everything = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Show all options in full and exit.",
        )
        super().__init__(
            *arguments, params=[*arguments_first, *ordered, *rest, everything], **named
        )

    def format_params(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the first panel in full, and the option names of the others."""
        if ctx.meta.get(_ALL):
            super().format_params(ctx, formatter)
            return
        usual, *others = self.option_groups
        names = [(group.title, partial(_flags, group)) for group in others]
        rest = self.get_default_option_group(ctx)
        writer = ensure_is_cloup_formatter(formatter)
        writer.write_section(self.make_option_group_help_section(usual, ctx))
        writer.write_section(HelpSection("More options, which --help-all explains", names))
        writer.write_section(self.make_option_group_help_section(rest, ctx))


_ALL = "syncswitch.help_all"


def _flags(group: cloup.OptionGroup, width: int) -> str:
    """The names of a panel's options, wrapped, but not at a hyphen."""
    names = ", ".join(max(option.opts, key=len) for option in group)
    lines = textwrap.wrap(names, width, break_on_hyphens=False)
    return lines[0] if len(lines) == 1 else "\n".join(["\b", *lines])


def _show_all(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        context.meta[_ALL] = True
        click.echo(context.get_help())
        context.exit()
