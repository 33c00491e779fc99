from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.trainers.faults.injections import check_injections, injections, parse_injection
from tests.wording import Said


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (
            " Straggler: worker = 0, delay=1500ms, at=500 ms , for=2.50s",
            "straggler:worker=0,at=500ms,for=2.5s,delay=1.5s",
        ),
        (
            "straggler:worker=01,for=0.5s,at=10%,slowdown=2.0",
            "straggler:worker=1,at=10%,for=500ms,slowdown=2",
        ),
        ("kill:worker=1,at=30.0%,for=3000ms", "kill:worker=1,at=30%,for=3s"),
        ("kill:chief,at=12s", "kill:chief,at=12s"),
        ("kill:ps=3,at=0.000012345%", "kill:ps=3,at=0.000012345%"),
        *(
            (text, text)  # Every digit counts.
            for text in (
                "straggler:worker=99999,at=98765432.5s,for=0.0001ms,slowdown=1.00000001",
                "straggler:worker=5,at=12.3456789%,for=65.432109%,delay=1.00000001s",
            )
        ),
        ("HANG:PS,AT=0%", "hang:ps,at=0%"),
        ("kill:ps=0,at=50%", "kill:ps,at=50%"),
        ("hang:ps = 2,at=50%", "hang:ps=2,at=50%"),
    ],
)
def test_there_is_one_way_of_writing(text: str, canonical: str) -> None:
    injection = parse_injection(text)
    assert injection.text == canonical
    assert parse_injection(canonical) == injection


def test_what_is_wrong_is_said_in_one_line(said: Said) -> None:
    for text in (
        "stop:worker=1,at=1%",
        "kill",
        "kill:worker,at=1%",
        "kill:chief=1,at=1%",
        "hang:chief,at=1%",
        "straggler:ps,at=1%",
        "kill:worker=-1,at=1%",
        "kill:worker=100000,at=1%",
        "kill:worker=1",
        "kill:worker=1,at=1%,at=2%",
        "kill:worker=1,at=",
        "kill:worker=1,at=1%,delay=1s",
        "kill:worker=1,at=20",
        "kill:worker=1,at=101%",
        "kill:worker=1,at=9999999999s",
        "kill:worker=1,at=100%",
        "kill:worker=1,at=1%,for=0s",
        "kill:ps,at=1%,for=3s",
        "straggler:worker=1,at=1%,delay=1s",
        "straggler:worker=1,at=1%,for=1s,delay=1s,slowdown=2",
        "straggler:worker=1,at=1%,for=1s,delay=0ms",
        "straggler:worker=1,at=1%,for=1s,delay=5%",
        "straggler:worker=1,at=1%,for=1s,slowdown=1",
    ):
        said.refusal("parameter-invalid", parse_injection, text)


@given(text=st.text(max_size=40) | st.from_regex(r"(kill|straggler|hang):[a-z=,%0-9.]{0,40}"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        injection = parse_injection(text)
    except UserError:
        return
    assert parse_injection(injection.text) == injection


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mild", ["straggler:worker=7,at=10%,for=20%,delay=10ms"]),
        ("Mild: delay = 100ms", ["straggler:worker=7,at=10%,for=20%,delay=100ms"]),
        (
            "moderate",
            [
                f"straggler:worker={worker},at={at}%,for=5%,delay=30ms"
                for worker in (6, 7)
                for at in (2.5, 12.5, 22.5, 32.5)
            ],
        ),
    ],
)
def test_the_scenarios_of_the_paper_are_stragglers_before_the_switch(
    text: str, expected: list[str]
) -> None:
    found = injections(["hang:ps,at=2s", text, "kill:worker=0,at=3%"], 8, 40)
    assert [one.text for one in found] == ["hang:ps,at=2s", *expected, "kill:worker=0,at=3%"]
    thirds = injections([text], 8, 100 / 3)
    assert injections([one.text for one in thirds], 8, 100 / 3) == thirds


def test_what_does_not_fit_a_job_is_refused(said: Said) -> None:
    for texts, workers, switch_percent in (
        (["wild"], 4, 40),
        ([""], 4, 40),
        (["mild:"], 8, 40),
        (["mild:by=cpu"], 8, 40),
        (["mild:delay=2%"], 8, 40),
        (["mild"], 1, 40),
        (["moderate"], 2, 40),
        (["mild"], 8, 0),
        (["kill:worker=4,at=1%"], 4, 40),
        (["kill:ps,at=1%", "kill:ps,at=1.0%"], 4, 40),
        (["kill:worker=0,at=1%", "hang:worker=1,at=1%"], 2, 40),
    ):
        said.refusal("parameter-invalid", injections, texts, workers, switch_percent)


def test_a_parameter_server_that_does_not_exist_cannot_be_disturbed(said: Said) -> None:
    second, third = [parse_injection("kill:ps=1,at=1%")], [parse_injection("hang:ps=2,at=1%")]
    check_injections(second, "processes", servers=2)
    said.refusal("parameter-invalid", check_injections, second, "processes")
    said.refusal("parameter-invalid", check_injections, third, "ray", servers=2)


STRAGGLER = "straggler:worker=1,at=1%,for=1s,delay=1ms"
KILL = "kill:worker=1,at=1%"
KILL_FOR = f"{KILL},for=2s"
HANG = "hang:worker=1,at=1%"
PS, CHIEF, HANG_PS = "kill:ps,at=1%", "kill:chief,at=1%", "hang:ps,at=1%"
ALL = {STRAGGLER, KILL, KILL_FOR, HANG, PS, CHIEF, HANG_PS}


@pytest.mark.parametrize(
    ("launcher", "allowed"),
    [
        ("in-process", {STRAGGLER, KILL, CHIEF}),
        ("processes", ALL - {KILL_FOR}),
        ("tf-config", {STRAGGLER, CHIEF}),
        ("ray", ALL - {KILL_FOR}),
        ("simulated", {STRAGGLER, KILL, KILL_FOR}),
    ],
)
def test_a_launcher_refuses_what_it_cannot_do(launcher: str, allowed: set[str]) -> None:
    for text in ALL:
        injection = parse_injection(text)
        if text in allowed:
            check_injections([injection], launcher)
        else:
            with pytest.raises(UserError) as caught:
                check_injections([injection], launcher)
            assert str(caught.value).startswith(f"injection {injection.text!r} cannot be used: ")
