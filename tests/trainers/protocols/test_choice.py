from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from syncswitch.cli.completion import PROTOCOL_EXAMPLES
from syncswitch.trainers.extensions import _in_group
from syncswitch.trainers.protocols import PROTOCOLS, choose_protocol, parse_named_pair, parse_pair
from syncswitch.trainers.protocols.choice import ENTRY_POINT_GROUP
from tests.wording import Said

Register = Callable[[str, str, str], None]


def test_the_examples_on_the_command_line_are_one_of_each_kind() -> None:
    kinds = [choose_protocol(example).kind for example in PROTOCOL_EXAMPLES]
    assert sorted(kind.name for kind in kinds) == sorted(PROTOCOLS)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" ASP ", "asp"),
        ("SSP: 3", "ssp:3"),
        ("dssp", "dssp:3-15"),
        ("dssp:3-15:bounded", "dssp:3-15"),
        ("dssp:03 - 15: Unbounded", "dssp:3-15:unbounded"),
        ("ds-sync:02", "ds-sync:2"),
        ("selsync:.30", "selsync:0.3"),
        ("selsync:1e0", "selsync:1"),
        ("qsr: 04 :0.020", "qsr:4:0.02"),
        ("qsr:4:0.1: Zeroed", "qsr:4:0.1:zeroed"),
        ("local-sgd:08:nesterov", "local-sgd:8:nesterov"),
        ("local-sgd:8:averaged", "local-sgd:8"),
        ("local-sgd:8:averaged:Semi-Sync", "local-sgd:8:semi-sync"),
        ("qsr:8:0.1:growing:semi-sync:zeroed", "qsr:8:0.1:zeroed:semi-sync:growing"),
        ("selsync:0.3:kept", "selsync:0.3"),
        ("selsync:0.30:averaged", "selsync:0.3:averaged"),
        ("ssp:0000000000000000000000000000000000000000000000000000000000000000009", "ssp:9"),
    ],
)
def test_a_choice_is_recorded_in_one_way(text: str, canonical: str) -> None:
    assert choose_protocol(text).text == canonical
    assert choose_protocol(canonical) == choose_protocol(text)


def test_wrong_options_are_told_how_to_write_them(said: Said) -> None:
    for text in (
        *("", ":", ":3", "nonsense", "bsp3", "local_sgd:8", "bsp:3", "asp:"),
        *("ssp", "ssp:", "ssp:³", "ssp:1000001", f"ssp:{'9' * 5000}"),
        *("dssp:3", "dssp:-3", "dssp:15-3", "dssp:3-15:free"),
        *("selsync", "selsync:-0.1", "selsync:nan", "selsync:1e7", "selsync:0.1:"),
        *("qsr:0.1", "qsr:4", "qsr:4:0", "qsr:4:0.1:2"),
        *("ds-sync", "local-sgd:0", "local-sgd:8:lost"),
        *("local-sgd:8:kept:zeroed", "local-sgd:8:growing:growing", "selsync:0.3:semi-sync"),
        "qsr:4:0.1:semi-sync:nesterov",
    ):
        said.refusal("parameter-invalid", choose_protocol, text)


@pytest.mark.parametrize(
    ("parse", "text", "pair"),
    [
        (parse_pair, " BSP , asp ", ("bsp", "asp")),
        (parse_pair, "local-sgd:08,dssp", ("local-sgd:8", "dssp:3-15")),
        (parse_pair, "ssp:3,ssp:4", ("ssp:3", "ssp:4")),
        # A command has names for its protocols.
        (parse_named_pair, "ddp,local-sgd", ("ddp", "local-sgd")),
        (parse_named_pair, "First,second.2", ("first", "second.2")),
        (parse_named_pair, "BSP,ssp:03", ("bsp", "ssp:3")),
    ],
)
def test_a_pair_is_recorded_in_one_way(
    parse: Callable[[str], tuple[str, str]], text: str, pair: tuple[str, str]
) -> None:
    assert parse(text) == pair


def test_what_is_no_pair_is_refused(said: Said) -> None:
    known = ("", "bsp", "bsp,bsp", "bsp,asp,bsp", "bsp,", "dssp,dssp:3-15", "bsp,ssp:x")
    named = (" DDP , PowerSGD:rank=2", "ddp,ddp", "ddp", "ddp,", "two words,x", f"{'x' * 65},y")
    for parse, texts in ((parse_pair, (*known, "bsp,nonsense")), (parse_named_pair, named)):
        for text in texts:
            said.refusal("parameter-invalid", parse, text)


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

    _in_group.cache_clear()
    yield install
    _in_group.cache_clear()
    choose_protocol.cache_clear()


def test_a_protocol_of_another_package_is_found_by_its_name_unless_it_is_one_of_ours(
    register: Register,
) -> None:
    source = (
        "from syncswitch.trainers.protocols.asp import ASP\n"
        "class EveryOther(ASP):\n"
        "    name = usage = 'every-other'\n"
    )
    register("every-other", "registered_protocol:EveryOther", source)
    choice = choose_protocol(" Every-Other ")
    assert choice.text == "every-other"
    assert choice.machine(range(2)).start().workers == (0, 1)
    assert parse_pair("bsp,every-other") == ("bsp", "every-other")
    register("bsp", "registered_protocol:EveryOther", source)
    _in_group.cache_clear()
    choose_protocol.cache_clear()
    assert choose_protocol("bsp").kind is PROTOCOLS["bsp"]


def test_a_broken_one_of_another_package_is_one_line(register: Register, said: Said) -> None:
    for name, source in (
        ("fails", "raise OSError('two\\nlines')"),
        ("other", "One = dict"),
        ("value", "One = 3"),
    ):
        register(name, f"registered_{name}:One", source)
        _in_group.cache_clear()
        said.refusal("extension-unusable", choose_protocol, name)
