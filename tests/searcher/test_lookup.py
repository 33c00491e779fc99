"""The look-up of a policy from Python."""

from __future__ import annotations

import logging

import pytest

from syncswitch import PolicyError, lookup
from tests.searcher.policies import published
from tests.storage.conftest import IDENTITY, OTHER_IDENTITY
from tests.wording import Said


def test_it_returns_the_policy_by_name_version_or_alias(url: str) -> None:
    first = published(url)
    second = published(url, study="another")
    assert (first.version, second.version) == (1, 2)
    name = "digits"
    assert lookup(name, storage=url) == second
    assert lookup(IDENTITY.fingerprint, storage=url) == second
    for old in (lookup(f"{name}@1", storage=url), lookup(name, version="1", storage=url)):
        assert old == first


def test_it_takes_the_newest_of_several_and_warns_of_the_others(
    url: str, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    small = published(url)
    large = published(url, OTHER_IDENTITY, created_at="2099-01-01T00:00:00+00:00")
    with caplog.at_level(logging.WARNING):
        assert lookup("digits", storage=url) == large
    said(*caplog.messages)
    caplog.clear()
    assert lookup("digits", workers=IDENTITY.job.workers, storage=url) == small
    assert not caplog.messages


def test_it_says_what_is_missing_in_the_words_of_python(url: str, said: Said) -> None:
    errors = []
    for _ in range(2):  # without a database, and with another job's policy
        with pytest.raises(PolicyError) as caught:
            lookup("other", workers=8, storage=url)
        errors.append(str(caught.value).replace(url, "URL"))
        published(url)
    said(*errors)
