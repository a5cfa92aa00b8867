"""The menu, and finding things by a word."""

import pytest
from click.testing import CliRunner

from htk.faces.cli.commands import COMMANDS, GROUPS, load_command
from htk.faces.cli.main import htk


def said(*words: str) -> str:
    outcome = CliRunner().invoke(htk, [*words])
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_lies_in_the_module_of_its_name(name: str) -> None:
    assert load_command(name).name == name


def test_the_menu_lists_each_command_once_by_what_one_wants() -> None:
    menu = said("--help")
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)
    assert all(menu.count(f"\n  {name} ") == 1 for name in COMMANDS)
    positions = [menu.index(f"{group}:") for group in GROUPS]
    assert positions == sorted(positions)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("straggler", "htk stragglers "),
        ("prices", "htk prices "),
        ("call trees", "htk diff-tree "),
        ("busbw", "(htk comm-summary)"),
        ("exposed_comm", "exposed_comm_ns"),
    ],
)
def test_a_word_finds_commands_questions_and_columns(word: str, expected: str) -> None:
    assert expected in said("help", word)


def test_without_a_word_it_is_the_menu() -> None:
    assert said("help") == said("--help")
