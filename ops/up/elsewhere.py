"""What to type in another terminal to see the same jobs."""

from __future__ import annotations

import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from ops.up.engines import Engines


def elsewhere(engines: Engines) -> list[str]:
    """The lines, each to be copied as it is; a setting that names somebody else's server is only spoken of."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in engines.exports().items()]
    lines += [f"# and export {name} as it is set here" for name in engines.named()]
    return [*lines, f"{program()} list"]


def program() -> str:
    """How a shell calls ``dramaturg``: by its name if it is on PATH, else by where it is."""
    if shutil.which("dramaturg"):
        return "dramaturg"
    script = Path(sysconfig.get_path("scripts")) / "dramaturg"
    return shlex.quote(str(script)) if script.is_file() else f"{shlex.quote(sys.executable)} -m ops.cli.main"
