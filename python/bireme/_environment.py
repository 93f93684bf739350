"""`runtime_env`: environment variables, a working directory and Python modules that workers get before they run the
user's code.

`RuntimeEnvironment.parse` is called where the user gives the option, so that a mistake is an error at that line. `pack`
takes a snapshot of the folders; `PackedEnvironment.apply` is called in a worker. Nothing here knows the engine, which
moves the packages.

>>> environment = RuntimeEnvironment.parse({"env_vars": {"OMP_NUM_THREADS": "1"}})
>>> dict(environment.env_vars)
{'OMP_NUM_THREADS': '1'}
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from bireme.exceptions import NotSupportedError, RuntimeEnvSetupError

__all__ = ["PackedEnvironment", "PackedModule", "RuntimeEnvironment"]

_FIELDS = ("env_vars", "working_dir", "py_modules", "excludes")
# Fields of Ray's that ask for something that is not there yet.
_NOT_YET = (
    "conda container docker image_uri java_jars mpi nsight pip py_executable rocprof_sys uv worker_process_setup_hook "
    "_inherit_uv_run_env"
).split()
# Fields of Ray's that say how to prepare, and mean nothing here.
_IGNORED = ("config",)

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class RuntimeEnvironment:
    """A checked `runtime_env`. Two that are equal need the same workers, as long as the folders do not change."""

    __slots__ = ("env_vars", "excludes", "py_modules", "working_dir")

    env_vars: Mapping[str, str]
    working_dir: str | None
    py_modules: tuple[str, ...]
    excludes: tuple[str, ...]

    def __init__(
        self,
        env_vars: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        py_modules: tuple[str, ...] = (),
        excludes: tuple[str, ...] = (),
    ) -> None:
        self.env_vars = MappingProxyType(dict(env_vars or {}))
        self.working_dir = working_dir
        self.py_modules = py_modules
        self.excludes = excludes

    @classmethod
    def parse(cls, given: Any, option: str = "runtime_env") -> RuntimeEnvironment:
        """The environment that the user described; a mistake raises here."""
        if isinstance(given, RuntimeEnvironment):
            return given
        if not isinstance(given, Mapping):
            raise TypeError(
                f"option {option!r} must be a dictionary with some of {', '.join(_FIELDS)}, "
                f"not {given!r} of type {type(given).__name__}"
            )
        for field in given:
            if field not in _FIELDS:
                _refuse(option, field, given[field])
        return cls(
            _env_vars(option, given.get("env_vars")),
            _working_dir(option, given.get("working_dir")),
            _py_modules(option, given.get("py_modules")),
            _excludes(option, given.get("excludes")),
        )

    def over(self, parent: RuntimeEnvironment | None) -> RuntimeEnvironment:
        """This environment of a task below that of its program: variables add up, the rest is the task's where it says
        so.
        """
        if parent is None:
            return self
        return RuntimeEnvironment(
            {**parent.env_vars, **self.env_vars},
            self.working_dir or parent.working_dir,
            self.py_modules or parent.py_modules,
            self.excludes if self.working_dir else parent.excludes,
        )

    def pack(self) -> PackedEnvironment:
        """A snapshot: later changes of the folders do not reach it."""
        from bireme._package import pack_archive, pack_directory, pack_file

        working_dir = None
        if self.working_dir is not None:
            is_folder = os.path.isdir(self.working_dir)
            working_dir = (
                pack_directory(self.working_dir, self.excludes)
                if is_folder
                else _existing(self.working_dir, pack_archive)
            )
        modules = []
        for path in self.py_modules:
            if os.path.isdir(path):
                package = pack_directory(path, self.excludes, prefix=os.path.basename(path))
            else:
                package = _existing(path, pack_file if path.endswith(".py") else pack_archive)
            modules.append(PackedModule(*package))
        return PackedEnvironment(
            dict(self.env_vars), PackedModule(*working_dir) if working_dir else None, tuple(modules)
        )

    def as_dict(self) -> dict[str, Any]:
        """The environment as the user would write it."""
        fields = {
            "env_vars": dict(self.env_vars),
            "working_dir": self.working_dir,
            "py_modules": list(self.py_modules),
            "excludes": list(self.excludes),
        }
        return {name: value for name, value in fields.items() if value}

    def __bool__(self) -> bool:
        return bool(self.env_vars or self.working_dir or self.py_modules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuntimeEnvironment) and self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.env_vars.items())), self.working_dir, self.py_modules, self.excludes))

    def __repr__(self) -> str:
        return f"RuntimeEnvironment({self.as_dict()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (RuntimeEnvironment, (dict(self.env_vars), self.working_dir, self.py_modules, self.excludes))


class PackedModule(NamedTuple):
    """A folder, file or archive of the snapshot; `archive` may be left empty where a worker has it unpacked already."""

    digest: str
    archive: bytes


class PackedEnvironment(NamedTuple):
    """A snapshot of an environment, ready to be sent."""

    env_vars: dict[str, str]
    working_dir: PackedModule | None
    modules: tuple[PackedModule, ...]

    @property
    def key(self) -> str:
        """Names the content: workers with the same key can run each other's tasks."""
        parts = [
            sorted(self.env_vars.items()),
            self.working_dir and self.working_dir.digest,
            [module.digest for module in self.modules],
        ]
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    def over(self, parent: PackedEnvironment | None) -> PackedEnvironment:
        """This environment of a task below that of the task that starts it, by the rule of `RuntimeEnvironment.over`."""
        if parent is None:
            return self
        return PackedEnvironment(
            {**parent.env_vars, **self.env_vars}, self.working_dir or parent.working_dir, self.modules or parent.modules
        )

    def apply(self, cache_directory: str) -> None:
        """Makes this process run in the environment. Call it in a worker before it imports the user's code."""
        from bireme._package import Package, unpack

        for name, value in self.env_vars.items():
            os.environ[name] = _VARIABLE.sub(lambda found: os.environ.get(found.group(1), ""), value)
        folders = [unpack(Package(*module), cache_directory) for module in self.modules]
        if self.working_dir is not None:
            folder = unpack(Package(*self.working_dir), cache_directory)
            os.chdir(folder)
            folders.insert(0, folder)
        sys.path[:0] = [folder for folder in folders if folder not in sys.path]
        importlib.invalidate_caches()


def _refuse(option: str, field: object, value: object) -> None:
    if field in _IGNORED or (field in _NOT_YET and value is None):
        return
    if field in _NOT_YET:
        raise NotSupportedError(
            f"{option}[{field!r}] is not supported yet; "
            "install what is needed where the program starts, and leave it out"
        )
    from difflib import get_close_matches

    near = get_close_matches(str(field), _FIELDS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"option {option!r} has no field {field!r}{hint} (it takes {', '.join(_FIELDS)})")


def _env_vars(option: str, given: Any) -> dict[str, str]:
    if given is None:
        return {}
    where = f"{option}['env_vars']"
    if not isinstance(given, Mapping):
        raise TypeError(f"{where} must be a dictionary of strings, not {given!r}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{where} must have strings as names and values, not {name!r}: {value!r}")
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise ValueError(f"{where} has a name or value that no environment variable can have: {name!r}: {value!r}")
    return dict(given)


def _working_dir(option: str, given: Any) -> str | None:
    if given is None:
        return None
    path = _path(f"{option}['working_dir']", given)
    if not os.path.isdir(path) and not path.endswith(".zip"):
        raise RuntimeEnvSetupError(f"{option}['working_dir'] must be a folder or a .zip file, which {path!r} is not")
    return path


def _py_modules(option: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    where = f"{option}['py_modules']"
    if isinstance(given, (str, bytes)) or not isinstance(given, (list, tuple)):
        raise TypeError(
            f"{where} must be a list of folders, .py, .zip or .whl files, or imported modules, not {given!r}"
        )
    paths = []
    for number, entry in enumerate(given):
        path = _path(f"{where}[{number}]", _module_path(where, entry) if isinstance(entry, ModuleType) else entry)
        if not os.path.isdir(path) and not path.endswith((".py", ".zip", ".whl")):
            raise RuntimeEnvSetupError(
                f"{where}[{number}] must be a folder or a .py, .zip or .whl file, which {path!r} is not"
            )
        paths.append(path)
    return tuple(paths)


def _module_path(where: str, module: ModuleType) -> str:
    folders = list(getattr(module, "__path__", ()))
    if len(folders) == 1:
        return str(folders[0])
    file = getattr(module, "__file__", None)
    if not folders and file is not None and file.endswith(".py"):
        return str(file)
    raise RuntimeEnvSetupError(f"{where} has the module {module.__name__!r}, which is not one folder or one .py file")


def _path(where: str, given: Any) -> str:
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"{where} must be a path, not {given!r} of type {type(given).__name__}")
    text = os.fspath(given)
    if isinstance(text, bytes):
        raise TypeError(f"{where} must be a path of characters, not {given!r}")
    if "://" in text:
        raise NotSupportedError(f"{where} with the address {text!r} is not supported yet; give a local path")
    path = os.path.abspath(os.path.expanduser(text))
    if not os.path.exists(path):
        raise RuntimeEnvSetupError(f"{where} does not exist: {path!r}")
    return path


def _excludes(option: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    if (
        isinstance(given, str)
        or not isinstance(given, (list, tuple))
        or not all(isinstance(each, str) for each in given)
    ):
        raise TypeError(f"{option}['excludes'] must be a list of patterns such as '*.log', not {given!r}")
    return tuple(given)


def _existing(path: str, pack: Any) -> Any:
    if not os.path.exists(path):
        raise RuntimeEnvSetupError(f"{path!r} was there when the runtime environment was described and is gone now")
    return pack(path)
