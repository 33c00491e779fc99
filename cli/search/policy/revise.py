"""`syncswitch-search policy revise`: leaves a policy that its uses contradict."""

from __future__ import annotations

from dataclasses import asdict

import click

from syncswitch.cli.console import print_json, print_text
from syncswitch.cli.options import common_options
from syncswitch.cli.search.policy.selection import Selection, existing, only, selection_options
from syncswitch.searcher.learning.words import uses_as_json, uses_sentence
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.file import policy_to_dict
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.uses.store import uses_of


@click.command()
@selection_options
@common_options
def revise(selection: Selection, storage_url: str, as_json: bool) -> None:
    """Publishes another switch for WORKLOAD, where the uses of its policy say so.

    That is where another switch that was tried is expected to take less time, what failed switches
    cost included. `current` then is the new version; other aliases stay.
    """
    from syncswitch.searcher.learning.uses import publish_revision, revision_of

    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        policy = only(registry, existing(registry, selection))
        revision, new = revision_of(database, policy), None
        if revision is not None:
            new = publish_revision(database, policy, revision)
        summary = uses_of(database, policy)
    if as_json:
        found = None if revision is None else asdict(revision)
        published = None if new is None else policy_to_dict(new)
        print_json({"revision": found, "policy": published, "uses": uses_as_json(summary)})
        return
    if revision is None or new is None:
        print_text(f"{policy.workload}: version {policy.version} stays. {uses_sentence(summary)}")
        return
    words = revision.why
    print_text(f"{words[0].upper()}{words[1:]}.")
    print_text(f"{new.workload}: current is version {new.version} (was {policy.version})")
