"""Where the program is."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

_NAME = "polysift"


def binary() -> Path:
    """Find the program: the one of the installed wheel, else the first on ``PATH``.

    Raises:
        FileNotFoundError: there is neither.

    """
    found = _of_the_wheel()
    if found is None and (on_path := shutil.which(_NAME)) is not None:
        found = Path(on_path)
    if found is None:
        raise FileNotFoundError(
            f"no program `{_NAME}`: neither in the installed wheel nor on PATH; "
            "install the wheel, or put the program's folder into PATH"
        )
    return found


def _of_the_wheel() -> Path | None:
    """Look into the list of installed files, which knows where any installer put the program."""
    try:
        files = metadata.distribution(_NAME).files or []
    except metadata.PackageNotFoundError:
        return None
    listed = [Path(str(f.locate())) for f in files if f.name == _NAME and f.parent.name == "bin"]
    # Of `pip install --target`, which moves the program to here after it made the list.
    beside = Path(__file__).parents[1] / "bin" / _NAME
    return next((path.resolve() for path in [*listed, beside] if path.is_file()), None)
