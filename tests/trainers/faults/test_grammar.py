from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.trainers.faults.grammar import Extent, Injection, parse_injection


def _number(least: float, most: float) -> st.SearchStrategy[float]:
    return st.floats(least, most).map(lambda value: round(value, 9))


percents = _number(1e-9, 49).map(lambda value: Extent(value, True))
times = _number(1e-9, 1e8).map(lambda value: Extent(value, False))
extents = percents | times
strengths = st.one_of(
    st.fixed_dictionaries({"delay_seconds": _number(1e-9, 1e8)}),
    st.fixed_dictionaries({"slowdown": _number(1.001, 1e6)}),
)


@st.composite
def stragglers(draw: st.DrawFn) -> Injection:
    at, lasting = draw(extents), draw(extents)
    options = draw(strengths)
    if draw(st.booleans()) and at.value <= 20:
        least = max(lasting.value, 1e-9) if at.is_percent == lasting.is_percent else 1e-9
        every = Extent(max(least, draw(_number(1e-9, 50))), at.is_percent)
        options |= {"times": 2, "every": every}
    worker = draw(st.integers(0, 99_999))
    return Injection("straggler", "worker", at, worker, lasting, **options)


kills = st.builds(
    Injection, st.just("kill"), st.just("worker"), extents, st.integers(0, 9), extents
)
failures = st.builds(
    Injection, st.sampled_from(["kill", "hang"]), st.just("ps"), extents
) | st.builds(Injection, st.just("kill"), st.just("chief"), extents)


@given(injection=stragglers() | kills | failures)
def test_what_is_written_reads_back_as_the_same(injection: Injection) -> None:
    assert parse_injection(injection.text) == injection


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (
            "straggler:worker=2,at=20%,for=100s,delay=30ms",
            "straggler:worker=2,at=20%,for=100s,delay=30ms",
        ),
        (
            " Straggler: worker = 0, delay=1500ms, at=500 ms , for=2.50s",
            "straggler:worker=0,at=500ms,for=2.5s,delay=1.5s",
        ),
        (
            "straggler:worker=1,for=5%,at=10%,every=20%,times=4,slowdown=2.0",
            "straggler:worker=1,at=10%,for=5%,slowdown=2,times=4,every=20%",
        ),
        (
            "straggler:worker=01,at=0s,for=0.5s,delay=1ms",
            "straggler:worker=1,at=0s,for=500ms,delay=1ms",
        ),
        ("kill:worker=1,at=30.0%,for=3000ms", "kill:worker=1,at=30%,for=3s"),
        ("kill:ps,at=50%", "kill:ps,at=50%"),
        ("kill:chief,at=12s", "kill:chief,at=12s"),
        ("HANG:PS,AT=0%", "hang:ps,at=0%"),
        ("kill:ps=0,at=50%", "kill:ps,at=50%"),
        ("hang:ps = 2,at=50%", "hang:ps=2,at=50%"),
    ],
)
def test_there_is_one_way_of_writing(text: str, canonical: str) -> None:
    assert parse_injection(text).text == canonical


def test_a_straggler_comes_again() -> None:
    injection = parse_injection("straggler:worker=1,at=10%,for=5%,delay=1ms,times=3,every=20%")
    assert [each.text for each in injection.beginnings] == ["10%", "30%", "50%"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stop:worker=1,at=1%", "begins with none of straggler, kill, hang"),
        ("kill", "happens to ''"),
        ("kill:worker,at=1%", "must be worker=NUMBER or ps[=NUMBER] or chief"),
        ("kill:chief=1,at=1%", "must be worker=NUMBER or ps[=NUMBER] or chief"),
        ("kill:ps=x,at=1%", "ps=x must be a whole number"),
        ("hang:chief,at=1%", "must be worker=NUMBER or ps[=NUMBER];"),
        ("straggler:ps,at=1%", "must be worker=NUMBER;"),
        ("kill:worker=-1,at=1%", "worker=-1 must be a whole number from 0 to 99999"),
        ("kill:worker=1", "at= is missing"),
        ("kill:worker=1,at=1%,at=2%", "at= is given twice"),
        ("kill:worker=1,at=", "'at=' is no option of it; it has at, for"),
        ("kill:worker=1,at=1%,delay=1s", "'delay=1s' is no option"),
        ("kill:worker=1,at=20", "at=20 must be a percent of the job such as 20%, or a time"),
        ("kill:worker=1,at=nans", "at=nans must be"),
        ("kill:worker=1,at=1e3s", "at=1e3s must be"),
        ("kill:worker=1,at=-1s", "at=-1s must be"),
        ("kill:worker=1,at=101%", "at=101% must be"),
        ("kill:worker=1,at=9999999999s", "at=9999999999s must be"),
        ("kill:worker=1,at=100%", "at 100%, it begins after the end of the job"),
        ("kill:worker=1,at=1%,for=0s", "for=0s must be more than 0"),
        ("kill:ps,at=1%,for=3s", "for= says how long a killed worker is away"),
        ("straggler:worker=1,at=1%,delay=1s", "for= is missing"),
        ("straggler:worker=1,at=1%,for=1s", "needs delay= or slowdown="),
        ("straggler:worker=1,at=1%,for=1s,delay=1s,slowdown=2", "needs delay= or"),
        ("straggler:worker=1,at=1%,for=1s,delay=0ms", "delay=0s must be more than 0"),
        ("straggler:worker=1,at=1%,for=1s,delay=5%", "delay=5% must be a time such as 30ms"),
        ("straggler:worker=1,at=1%,for=1s,slowdown=1", "slowdown=1 must be a number above 1"),
        ("straggler:worker=1,at=1%,for=1s,delay=1s,by=cpu", "'by=cpu' is no option of it"),
        ("straggler:worker=1,at=1%,for=1s,cpu=25%", "'cpu=25%' is no option of it"),
        ("straggler:worker=1,at=1%,for=1s,delay=1s,times=2", "times= and every= go together"),
        ("straggler:worker=1,at=1%,for=1s,delay=1s,times=1,every=2%", "times=1 must be a whole"),
        ("straggler:worker=1,at=1%,for=1s,delay=1s,times=2,every=2s", "both be percents or both"),
        ("straggler:worker=1,at=1%,for=3%,delay=1s,times=2,every=2%", "longer than every=2%"),
        ("straggler:worker=1,at=80%,for=1s,delay=1s,times=3,every=10%", "at 100%, it begins"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_injection(text)
    message = str(caught.value)
    assert message.startswith(f"injection {text!r}: ")
    assert words in message
    assert "\n" not in message


@given(text=st.text(max_size=40) | st.from_regex(r"(kill|straggler|hang):[a-z=,%0-9.]{0,40}"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        injection = parse_injection(text)
    except UserError:
        return
    assert parse_injection(injection.text) == injection
