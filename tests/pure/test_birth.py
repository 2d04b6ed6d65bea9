"""How the log of a subagent begins."""

import pytest

from callboard.actors.errors import ToolError
from callboard.actors.events import SessionOpened
from callboard.actors.stage import SpawnRequest
from callboard.runtime.birth import opening_of, role_of
from callboard.runtime.settings import RoleConfig

ROLES = {
    "scout": RoleConfig(instructions="Look.", model="scripted:demo", tools=("read_file", "shell")),
    "plain": RoleConfig(),
}
ABOVE = SessionOpened(root="p", system="Be kind.", model="m")


def born(opened=ABOVE, **asked):
    """What a request for `a` makes of its parent's opening."""
    request = SpawnRequest("p", "a", "work", **asked)
    return opening_of(request, opened, role_of(request, ROLES))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, {"system": "Be kind.", "model": "m"}),
        ({"role": "plain"}, {"system": "Be kind.", "model": "m"}),
        (
            {"role": "scout"},
            {
                "system": "Be kind.\n\nLook.",
                "model": "scripted:demo",
                "only": ("read_file", "shell", "report"),
            },
        ),
        ({"model": "other"}, {"system": "Be kind.", "model": "other"}),
        ({"system": "Review.", "withheld": ("x",)}, {"system": "Review.", "model": "m", "withheld": ("x",)}),
    ],
    ids=repr,
)
def test_opening(asked, expected):
    """A child has the instructions and the model of its parent, then of its role, then what the call asked for."""
    assert SessionOpened("p", "p", 1, "/root/a", title="a", **expected) == born(**asked)


def test_model_of_a_call_comes_before_that_of_a_role():
    """A call that names a role and a model gets that model."""
    assert "mine" == born(role="scout", model="mine").model


@pytest.mark.parametrize(
    ("above", "asked", "withheld", "only"),
    [
        ({}, {}, (), None),
        ({"withheld": ("a",)}, {"withheld": ("b", "a")}, ("a", "b"), None),
        ({"only": ("shell", "report")}, {}, (), ("shell", "report")),
        ({"only": ("shell", "report")}, {"role": "scout"}, (), ("shell", "report")),
        ({"only": ("read_file",)}, {"role": "scout"}, (), ("read_file",)),
        ({"only": ()}, {"role": "scout"}, (), ()),
        ({"withheld": ("shell",)}, {"role": "scout"}, ("shell",), ("read_file", "shell", "report")),
    ],
    ids=repr,
)
def test_tools_are_never_more_than_the_parents(above, asked, withheld, only):
    """What is withheld is inherited, and a role leaves at most what its parent has."""
    opening = born(SessionOpened(root="p", **above), **asked)
    assert (withheld, only) == (opening.withheld, opening.only)


@pytest.mark.parametrize(
    ("roles", "role", "words"),
    [
        (ROLES, "nobody", "there is no role 'nobody': choose one of plain, scout, or leave it out."),
        ({}, "scout", "there is no role 'scout': this runtime has none, or leave it out."),
        (ROLES, "\x00\ud800" * 1000, "choose one of plain, scout"),
        ({f"r{n}": RoleConfig() for n in range(1000)}, "", "choose one of r0, r1, r10"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_unknown_role(roles, role, words):
    """A role that is not there is refused with the names of those that are."""
    with pytest.raises(ToolError) as caught:
        role_of(SpawnRequest("p", "a", "work", role=role), roles)
    text = str(caught.value)
    assert words in text
    assert (True, True) == (text.isprintable(), len(text) < 500)
