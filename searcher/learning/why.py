"""Reads why a policy of a database says what it says."""

from __future__ import annotations

from syncswitch.searcher.learning.stored import used_job
from syncswitch.searcher.search.explanation import Explanation, explain
from syncswitch.searcher.search.observations import read_observations
from syncswitch.searcher.strategies.planner import course_of
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.rows import PolicyEntry
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo


def policy_explained(database: Database, entry: PolicyEntry) -> Explanation:
    """By the search that found it; where that is not here, by its evidence and its uses.

    Raises UserError where the runs leave nothing to compare with.
    """
    policy = entry.policy
    searches = TrialStore(database).searches(workload=policy.fingerprint)
    found = [search for search in searches if search.study == policy.study]
    if found and entry.imported_at is None:
        return search_explained(database, found[0])
    job = used_job(database, policy)
    return explain(job.strategy(), job.observations())


def search_explained(database: Database, search: SearchInfo) -> Explanation:
    """By its runs so far, speculative ones left out."""
    trials = TrialStore(database).trials(fingerprint=search.fingerprint)
    rows = {
        trial.trial_number: trial
        for trial in trials
        if trial.study == search.study and trial.trial_number is not None
    }
    strategy = stored_strategy(search)
    course = course_of(strategy, read_observations(database, search.study, rows))
    return explain(strategy, course.runs)
