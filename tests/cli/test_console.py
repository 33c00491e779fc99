from __future__ import annotations

import pytest

from syncswitch.cli import console

EVIL = "a\x1b]0;evilb\x9bc\u202ed"
HARMLESS = "a?]0;evilb?c?d"


@pytest.mark.parametrize(
    "show",
    [
        console.echo,
        console.print_text,
        console.print_note,
        console.print_error,
        lambda text: console.print_rows([[("name", text)]]),
        lambda text: console.rich_console(stderr=True).print(text, markup=False),
        lambda text: console.rich_console().print(text, style="bold", markup=False),
    ],
)
def test_no_text_steers_the_terminal(show: object, capsys: pytest.CaptureFixture[str]) -> None:
    show(EVIL)  # type: ignore[operator]
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert HARMLESS in " ".join(shown.split())
    assert not set(shown) & set("\x1b\x9b\u202e")


def test_tabs_and_lines_stay() -> None:
    assert console.printable("a\tb\nc é 漢") == "a\tb\nc é 漢"
