"""What tests of the files share: a view of a folder, and calls as a dispatcher makes them."""

from pathlib import Path
from typing import Any

import pytest

from callboard.actors.abort import Signal
from callboard.actors.errors import ToolError
from callboard.plugins.files import FILES


class FakeView:
    """The part of a View that the files use."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.interrupted = str(folder), Signal()


def call(folder: Path, name: str, plugin=FILES, view: Any = None, **arguments: Any) -> Any:
    """What a dispatcher does with one call, without the thread."""
    tool = next(one for one in plugin.tools if one.name == name)
    args, kwargs = tool.bind(tool.parse(arguments), view or FakeView(folder))
    return tool.fn(*args, **kwargs)


def refused(folder: Path, name: str, plugin=FILES, **arguments: Any) -> str:
    """The sentence of the ToolError that the call raises."""
    with pytest.raises(ToolError) as error:
        call(folder, name, plugin, **arguments)
    return str(error.value)


def home(folder: Path) -> Path:
    """A session's folder, with something secret beside it."""
    (folder / "secret").write_text("secret")
    (folder / "home").mkdir()
    return folder / "home"
