"""The look-up of a policy as a Python function; Optuna is not imported."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from syncswitch.searcher.known_policies import look_up
from syncswitch.searcher.python_calls import checked, tell
from syncswitch.searcher.selection import ClusterKind, Selection, none_found, split_choice
from syncswitch.storage.database.defaults import database_url
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import holds_nothing
from syncswitch.storage.policies.registry import CURRENT
from syncswitch.storage.records.policy import TimingPolicy

__all__ = ["lookup"]


@checked
def lookup(
    workload: str,
    *,
    workers: Annotated[int, Field(ge=1)] | None = None,
    protocols: str | None = None,
    cluster: ClusterKind | None = None,
    version: str | None = None,
    storage: str | None = None,
) -> TimingPolicy:
    """Looks up the policy of a workload, which need not be there itself.

    Where several policies fit, it is the newest, that of a real cluster first; a warning in the log
    names the others.

    Example:
        ```
        policy = lookup("digits", workers=8)
        print(policy.switch_percent)
        ```

    Args:
        workload: Name, reference, or 8 or more digits of the fingerprint; with `@1` or
            `@ALIAS` behind it another policy than the current one.
        workers: Only the policy for this many workers.
        protocols: Only the policy with these, such as `bsp,asp`.
        cluster: Only the policy for a real or for a simulated cluster.
        version: Version or alias of the policy; None for the current one.
        storage: As for `search`.

    Returns:
        The policy, with the target, shares and times that its uses have shown.

    Raises:
        PolicyError: There is no such policy.
    """
    url = database_url(storage)
    name, choice = split_choice(workload)
    selection = Selection(name, workers, protocols, cluster, version or choice or CURRENT)
    if holds_nothing(url):
        raise none_found([], selection, url)
    with open_database(url, create=False) as database:
        return look_up(database, selection, tell)[0].policy
