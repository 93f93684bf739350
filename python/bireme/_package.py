"""A folder, file or archive as one block of bytes, named by its content; and back.

Called by `bireme._environment`: the driver packs, workers unpack. Equal content gives equal bytes and so the same
digest, whatever the times of the files, so a folder that did not change is sent and unpacked once.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bireme.exceptions import RuntimeEnvSetupError

__all__ = ["Package", "pack_archive", "pack_directory", "pack_file", "unpack"]

# What one folder or archive of a runtime environment may take, before packing. Above it the caller gets an error.
PACKAGE_BYTES_MAX = 500 * 2**20

# Never sent: they belong to this machine and can be large.
DEFAULT_EXCLUDES = (".git", "__pycache__", ".venv", "venv")

_EPOCH = (1980, 1, 1, 0, 0, 0)


class Package(NamedTuple):
    """An archive and the name of its content."""

    digest: str
    archive: bytes


def pack_directory(directory: str, excludes: Sequence[str] = (), prefix: str = "") -> Package:
    """Everything in a folder but what the patterns name. With a `prefix` the files are in a folder of that name."""
    excludes = (*DEFAULT_EXCLUDES, *(pattern.strip("/") for pattern in excludes))
    files = sorted(_files(directory, excludes))
    total = 0
    for _, path in files:
        total += os.path.getsize(path)
        _check_size(directory, total)
    return _archive([(os.path.join(prefix, name) if prefix else name, path) for name, path in files])


def pack_file(path: str) -> Package:
    """One file."""
    _check_size(path, os.path.getsize(path))
    return _archive([(os.path.basename(path), path)])


def pack_archive(path: str) -> Package:
    """A zip archive or wheel as it is."""
    _check_size(path, os.path.getsize(path))
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(path, sum(member.file_size for member in archive.infolist()))
        with open(path, "rb") as file:
            content = file.read()
    except (OSError, zipfile.BadZipFile) as trouble:
        raise RuntimeEnvSetupError(f"the archive {path!r} cannot be read: {trouble}") from trouble
    return Package(_digest(content), content)


def unpack(package: Package, cache_directory: str) -> str:
    """The folder with the content of a package, below `cache_directory`. Unpacked once; several processes may do it at
    the same time.
    """
    target = os.path.join(cache_directory, package.digest)
    if os.path.isdir(target):
        return target
    os.makedirs(cache_directory, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=".unpacking-", dir=cache_directory)
    try:
        _extract(package.archive, scratch)
        os.chmod(scratch, 0o755)
        try:
            os.rename(scratch, target)
        except OSError:
            # Another process was faster, and its content is the same.
            if not os.path.isdir(target):
                raise
    except (OSError, zipfile.BadZipFile) as trouble:
        raise RuntimeEnvSetupError(
            f"a package of the runtime environment cannot be unpacked into {cache_directory!r}: {trouble}"
        ) from trouble
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _files(directory: str, excludes: Sequence[str]) -> Iterator[tuple[str, str]]:
    def fail(trouble: OSError) -> None:
        raise RuntimeEnvSetupError(f"{trouble.filename!r} cannot be read: {trouble.strerror}") from trouble

    seen: set[str] = set()
    for folder, folders, names in os.walk(directory, followlinks=True, onerror=fail):
        # Links to folders are followed, so a link upwards would never end.
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        below = os.path.relpath(folder, directory)
        inside = "" if below == os.curdir else below
        folders[:] = [name for name in folders if not _is_excluded(os.path.join(inside, name), excludes)]
        for name in names:
            path, relative = os.path.join(folder, name), os.path.join(inside, name)
            # Sockets, pipes and links to nowhere have no content to send.
            if os.path.isfile(path) and not _is_excluded(relative, excludes):
                yield relative, path


def _is_excluded(relative: str, excludes: Sequence[str]) -> bool:
    name = os.path.basename(relative)
    return any(fnmatch.fnmatchcase(relative, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in excludes)


def _check_size(path: str, size_bytes: int) -> None:
    if size_bytes > PACKAGE_BYTES_MAX:
        raise RuntimeEnvSetupError(
            f"{path!r} has more than {PACKAGE_BYTES_MAX // 2**20} MiB, the limit for a runtime environment; "
            "leave files out with 'excludes', or let the tasks read them from a shared place"
        )


def _archive(files: Sequence[tuple[str, str]]) -> Package:
    buffer = io.BytesIO()
    # Not compressed: it does not leave the machine, and copying is faster than packing.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, path in files:
            entry = zipfile.ZipInfo(name.replace(os.sep, "/"), date_time=_EPOCH)
            try:
                executable = os.stat(path).st_mode & stat.S_IXUSR
                entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
                with open(path, "rb") as file:
                    archive.writestr(entry, file.read())
            except OSError as trouble:
                raise RuntimeEnvSetupError(f"{path!r} cannot be read: {trouble.strerror}") from trouble
    content = buffer.getvalue()
    return Package(_digest(content), content)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _extract(content: bytes, directory: str) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            path = archive.extract(member, directory)
            mode = (member.external_attr >> 16) & 0o777
            if mode and not member.is_dir():
                os.chmod(path, mode | stat.S_IRUSR)
