from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.trainers.faults.grammar import parse_injection
from syncswitch.trainers.faults.scenario import (
    SCENARIOS,
    check_injections,
    expand,
    injections,
)


def texts(name: str, workers: int = 8, switch_percent: float = 40) -> list[str]:
    return [one.text for one in expand(name, workers, switch_percent)]


class TestTheScenariosOfThePaper:
    def test_mild_is_one_straggler_once(self) -> None:
        assert texts("mild") == ["straggler:worker=7,at=10%,for=20%,delay=10ms"]

    def test_moderate_is_two_stragglers_four_times(self) -> None:
        assert texts("moderate") == [
            f"straggler:worker={worker},at=2.5%,for=5%,delay=30ms,times=4,every=10%"
            for worker in (6, 7)
        ]

    def test_the_delay_can_be_chosen(self) -> None:
        assert texts("Mild: delay = 100ms") == ["straggler:worker=7,at=10%,for=20%,delay=100ms"]

    @given(
        name=st.sampled_from(sorted(SCENARIOS)),
        workers=st.integers(3, 64),
        switch_percent=st.floats(0.01, 100),
    )
    def test_all_is_over_before_the_switch(
        self, name: str, workers: int, switch_percent: float
    ) -> None:
        found = expand(name, workers, switch_percent)
        assert len({one.worker for one in found}) == len(found) == SCENARIOS[name].stragglers
        for one in found:
            assert one.lasting is not None
            assert one.beginnings[-1].value + one.lasting.value < switch_percent
            assert parse_injection(one.text) == one

    @pytest.mark.parametrize(
        ("name", "workers", "switch_percent", "words"),
        [
            ("severe", 8, 40, "'severe' is not known; write it as mild or moderate"),
            ("mild:", 8, 40, "'' is no option of it"),
            ("mild:by=cpu", 8, 40, "'by=cpu' is no option of it"),
            ("mild:delay=2%", 8, 40, "delay=2% must be a time"),
            ("mild", 1, 40, "makes 1 of the workers slow, and there are 1; use 2 or more"),
            ("moderate", 2, 40, "makes 2 of the workers slow, and there are 2; use 3 or more"),
            ("mild", 8, 0, "before the switch, which is at 0 %; give injections such as"),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, name: str, workers: int, switch_percent: float, words: str
    ) -> None:
        with pytest.raises(UserError) as caught:
            expand(name, workers, switch_percent)
        assert words in str(caught.value)


class TestWhatMayBeNamed:
    def test_injections_and_scenarios_together(self) -> None:
        found = injections(["hang:ps,at=2s", "mild", "kill:chief,at=3%"], 2, 40)
        assert [(one.kind, one.role) for one in found] == [
            ("hang", "ps"),
            ("straggler", "worker"),
            ("kill", "chief"),
        ]

    @pytest.mark.parametrize(
        ("given_texts", "words"),
        [
            (["wild"], "--inject is 'wild': give an injection such as"),
            ([""], "--inject is '': give"),
            (["kill:worker=4,at=1%"], "the 4 workers are numbered from 0 to 3"),
            (["kill:ps,at=1%", "kill:ps,at=1.0%"], "'kill:ps,at=1%' is given twice"),
            (
                [f"kill:worker={worker},at=1%" for worker in range(3)] + ["hang:worker=3,at=1%"],
                "takes all 4 workers away at 1%",
            ),
        ],
    )
    def test_what_does_not_fit_is_refused(self, given_texts: list[str], words: str) -> None:
        with pytest.raises(UserError) as caught:
            injections(given_texts, 4, 40)
        assert words in str(caught.value)

    def test_one_worker_after_the_other_may_be_killed(self) -> None:
        assert len(injections(["kill:worker=0,at=1%", "kill:worker=1,at=2%"], 2, 40)) == 2


STRAGGLER = "straggler:worker=1,at=1%,for=1s,delay=1ms"
KILL = "kill:worker=1,at=1%"
KILL_FOR = f"{KILL},for=2s"
HANG = "hang:worker=1,at=1%"
PS, CHIEF, HANG_PS = "kill:ps,at=1%", "kill:chief,at=1%", "hang:ps,at=1%"
ALL = {STRAGGLER, KILL, KILL_FOR, HANG, PS, CHIEF, HANG_PS}


def test_a_parameter_server_that_is_not_there_cannot_be_disturbed() -> None:
    found = [parse_injection("kill:ps=1,at=1%")]
    check_injections(found, "processes", servers=2)
    with pytest.raises(UserError, match="there is one parameter server, ps=0"):
        check_injections(found, "processes")
    with pytest.raises(UserError, match="the 2 parameter servers are numbered from 0 to 1"):
        check_injections([parse_injection("hang:ps=2,at=1%")], "ray", servers=2)


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
