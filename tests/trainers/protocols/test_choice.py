from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from syncswitch.cli.completion import PROTOCOL_EXAMPLES
from syncswitch.storage.errors import UserError
from syncswitch.trainers.protocols import (
    ASP,
    ENTRY_POINT_GROUP,
    PROTOCOLS,
    choose_protocol,
    parse_named_pair,
    parse_pair,
)

Register = Callable[[str, str, str], None]


def refusal(text: str) -> str:
    with pytest.raises(UserError) as error:
        choose_protocol(text)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_the_examples_on_the_command_line_are_one_of_each_kind() -> None:
    kinds = [choose_protocol(example).kind for example in PROTOCOL_EXAMPLES]
    assert sorted(kind.name for kind in kinds) == sorted(PROTOCOLS)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("bsp", "bsp"),
        (" ASP ", "asp"),
        ("ssp:03", "ssp:3"),
        ("SSP: 3", "ssp:3"),
        ("dssp", "dssp:3-15"),
        ("dssp:3-15:bounded", "dssp:3-15"),
        ("dssp:03 - 15: Unbounded", "dssp:3-15:unbounded"),
        ("dssp:4-4", "dssp:4-4"),
        ("ds-sync:02", "ds-sync:2"),
        ("local-sgd:8", "local-sgd:8"),
        ("ssp:0000000000000000000000000000000000000000000000000000000000000000009", "ssp:9"),
    ],
)
def test_a_choice_is_recorded_in_one_way(text: str, canonical: str) -> None:
    assert choose_protocol(text).text == canonical
    assert choose_protocol(canonical) == choose_protocol(text)


@pytest.mark.parametrize("text", ["", ":", ":3", "nonsense", "bsp3", "local_sgd:8"])
def test_an_unknown_name_is_told_what_there_is(text: str) -> None:
    message = refusal(text)
    assert message.startswith(f"no protocol {text!r}; known: asp, bsp, ")
    assert all(kind.usage in message for kind in PROTOCOLS.values())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bsp:3", "it takes no options"),
        ("asp:", "nothing follows the colon"),
        ("ssp", "LEAD must be a whole number from 0 to 1000000"),
        ("ssp:", "nothing follows the colon"),
        ("ssp:-1", "LEAD must be a whole number from 0 to 1000000"),
        ("ssp:+1", "LEAD must be"),
        ("ssp:1.5", "LEAD must be"),
        ("ssp:1_0", "LEAD must be"),
        ("ssp:³", "LEAD must be"),
        ("gba", "IOTA must be a whole number from 0 to 1000000"),
        ("ssp:3:4", "LEAD must be"),
        ("ssp:1000001", "LEAD must be"),
        pytest.param(f"ssp:{'9' * 30}", "LEAD must be", id="ssp of 30 digits"),
        pytest.param(f"ssp:{'9' * 5000}", "LEAD must be", id="ssp of 5000 digits"),
        ("dssp:3", "HIGH must be a whole number from 0 to 1000"),
        ("dssp:-3", "LOW must be a whole number from 0 to 1000"),
        ("dssp:3-1001", "HIGH must be"),
        ("dssp:15-3", "LOW must not be above HIGH"),
        ("dssp:3-15:", "after LOW-HIGH write unbounded, or bounded"),
        ("dssp:3-15:free", "after LOW-HIGH write unbounded, or bounded"),
        ("dssp:unbounded", "LOW must be"),
        ("ds-sync", "GROUP_SIZE must be a whole number from 1 to 1000000"),
        ("ds-sync:0", "GROUP_SIZE must be"),
        pytest.param(f"ds-sync:{'9' * 30}", "GROUP_SIZE must be", id="ds-sync of 30 digits"),
        ("local-sgd", "STEPS must be a whole number from 1 to 1000000"),
        ("local-sgd:0", "STEPS must be"),
    ],
)
def test_wrong_options_are_told_how_to_write_them(text: str, reason: str) -> None:
    message = refusal(text)
    assert message.startswith(f"protocol {text!r}: {reason}")
    assert message.endswith(f"; write it as {PROTOCOLS[text.partition(':')[0]].usage}")


def test_one_worker_is_too_few() -> None:
    with pytest.raises(UserError, match=r"'ssp:3' .* --workers 1: it needs 2 workers or more"):
        choose_protocol("ssp:3").check_cluster(1)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        (" BSP , asp ", ("bsp", "asp")),
        ("asp,bsp", ("asp", "bsp")),
        ("local-sgd:08,dssp", ("local-sgd:8", "dssp:3-15")),
        ("ssp:3,ssp:4", ("ssp:3", "ssp:4")),
    ],
)
def test_a_pair_is_read_in_its_order_and_recorded_in_one_way(
    text: str, pair: tuple[str, str]
) -> None:
    assert parse_pair(text) == pair


@pytest.mark.parametrize(
    "text", ["", "bsp", "bsp,bsp", "bsp,asp,bsp", "bsp,", ",", "bsp,nonsense", "dssp,dssp:3-15"]
)
def test_any_other_pair_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError) as error:
        parse_pair(text)
    message = str(error.value)
    assert "\n" not in message
    assert "asp" in message.split("known:")[1]


def test_wrong_options_in_a_pair_are_told_how_to_write_them() -> None:
    with pytest.raises(UserError, match=r"^protocol 'ssp:x': LEAD must be"):
        parse_pair("bsp,ssp:x")


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Register]:
    """Installs a distribution with one module that registers a protocol."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, value: str, source: str) -> None:
        (tmp_path / f"{value.partition(':')[0]}.py").write_text(source)
        metadata = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{name} = {value}\n")

    yield install
    choose_protocol.cache_clear()


def test_a_protocol_of_another_package_is_found_by_its_name(register: Register) -> None:
    register(
        "every-other",
        "registered_protocol_whole:EveryOther",
        "from syncswitch.trainers.protocols import ASP\n"
        "class EveryOther(ASP):\n"
        "    name = usage = 'every-other'\n",
    )
    choice = choose_protocol(" Every-Other ")
    assert choice.text == "every-other"
    assert issubclass(choice.kind, ASP)
    assert choice.machine(range(2)).start().workers == (0, 1)
    assert parse_pair("bsp,every-other") == ("bsp", "every-other")


def test_it_does_not_replace_one_of_our_own(register: Register) -> None:
    register("bsp", "registered_protocol_bsp:Ours", "from syncswitch.trainers.protocols import *\n")
    choose_protocol.cache_clear()
    assert choose_protocol("bsp").kind is PROTOCOLS["bsp"]


@pytest.mark.parametrize(
    ("name", "value", "source", "reason"),
    [
        ("fails", "registered_fails:One", "raise OSError('two\\nlines')", "OSError: two lines"),
        ("wants", "registered_wants:One", "import no_such_package", "ModuleNotFoundError"),
        ("lacks", "registered_lacks:One", "", "AttributeError"),
        ("other", "registered_other:One", "One = dict", "is not a subclass of syncswitch"),
        ("value", "registered_value:One", "One = 3", "is not a subclass of syncswitch"),
    ],
)
def test_a_broken_one_of_another_package_is_one_line(
    register: Register, name: str, value: str, source: str, reason: str
) -> None:
    register(name, value, source)
    message = refusal(name)
    assert message.startswith(f"protocol {name!r}: ")
    assert value in message
    assert reason in message


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("ddp,local-sgd", ("ddp", "local-sgd")),
        (" DDP , PowerSGD:rank=2", None),
        ("First,second.2", ("first", "second.2")),
        ("BSP,ssp:03", ("bsp", "ssp:3")),
        ("ddp,ddp", None),
        ("ddp", None),
        ("ddp,", None),
        ("two words,x", None),
        (f"{'x' * 65},y", None),
    ],
)
def test_a_command_has_names_for_its_protocols(text: str, pair: tuple[str, str] | None) -> None:
    if pair is not None:
        assert parse_named_pair(text) == pair
        return
    with pytest.raises(UserError, match="give two different names, before and after the switch"):
        parse_named_pair(text)
