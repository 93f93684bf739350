"""The build backend of the package: maturin, and the native `bireme` command beside the extension.

maturin builds an extension or a command, never both. This backend builds the command first and lays it where maturin
takes the wheel's scripts from (`[tool.maturin] data` in `pyproject.toml`); all else is maturin's. Both builds use one
target folder and one profile, and dependencies with the features that the whole workspace asks for, so that each is compiled once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import maturin

Settings = Mapping[str, Any] | None

# A front end calls a backend in the folder of the project.
SCRIPTS = Path("target/wheel-data/scripts")
PACKAGE = "bireme-cli"
COMMAND = "bireme"


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Builds the command, then the wheel with both."""
    build_command()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """The same for `pip install -e`: the extension goes into the source folder, the command into the environment."""
    build_command()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """The sources, as they are under version control."""
    prepare()
    return maturin.build_sdist(sdist_directory, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """The metadata alone."""
    prepare()
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Nothing beside maturin."""
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
get_requires_for_build_sdist = get_requires_for_build_wheel


def prepare() -> None:
    """Makes sure that cargo is found and that the folder of the scripts is there: maturin wants both."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    if shutil.which("cargo") is None:
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(home / "bin")])
    if shutil.which("cargo") is None:
        sys.exit("bireme is built with Rust, and there is no cargo on PATH: install Rust from https://rustup.rs")
    SCRIPTS.mkdir(parents=True, exist_ok=True)


def build_command() -> None:
    """Builds the native command and lays it among the wheel's scripts, without debugging information."""
    prepare()
    # Not `--package`, which would give dependencies other features than the extension's.
    cargo = ["cargo", "build", "--release", "--locked", "--bin", COMMAND]
    cargo += ["--config", f'profile.release.package.{PACKAGE}.strip="debuginfo"']
    # Printed apart from what cargo says to people: where the command is, whatever the target folder.
    cargo += ["--message-format", "json-render-diagnostics"]
    built = subprocess.run(cargo, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(f"the command `{COMMAND}` was not built: {' '.join(cargo)} ended with {built.returncode}")
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    executables = [message["executable"] for message in messages if message.get("executable")]
    if len(executables) != 1:
        sys.exit(f"cargo built {executables} and not one command `{COMMAND}`")
    target = SCRIPTS / COMMAND
    # A new file: the old one may be running.
    target.unlink(missing_ok=True)
    shutil.copy2(executables[0], target)
    target.chmod(0o755)
