"""Arrays and bytes between Rust tasks and Python tasks on one runtime, through an extension that carries both."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

REPOSITORY = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
    import bireme
    import numpy

    @bireme.remote
    def make(rows):
        return numpy.linspace(0.0, 1.0, rows * 10).reshape(rows, 10)

    @bireme.remote
    def check(original, scaled):
        assert not scaled.flags.writeable
        return scaled.shape == original.shape and scaled.tobytes() == (original * 3.0).tobytes()

    @bireme.remote
    def call_rust(function, array):
        return bireme.get(function.remote(array, numpy.array([2.0])))

    def raised(call):
        try:
            bireme.get(call())
        except Exception as error:
            return error
        raise AssertionError("nothing was raised")

    with bireme.init(num_cpus=2, log_to_driver=False):
        rust = lambda name, **options: bireme.rust_function("bireme_mixed::" + name, **options)
        scale = rust("scale")
        assert scale.signature.startswith("bireme_mixed::scale(Array, Array)")

        # Python makes it, Rust reads and transforms it, Python reads the result: equal bits.
        for rows in (1, 7, 20_000):
            array = make.remote(rows)
            assert bireme.get(check.remote(array, scale.remote(array, numpy.array([3.0]))))

        # Large arrays are read where they lie: in shared memory, aligned, made by either language.
        for large in (make.remote(20_000), rust("pass_array").remote(make.remote(20_000)), numpy.zeros((500, 500))):
            assert bireme.get(rust("place").remote(large)).tolist() == [1, 0]

        # Every element type that both know arrives with type, shape and bits.
        for kind in "u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8 ?".split():
            array = numpy.arange(24).astype(kind).reshape(2, 3, 4)
            back = bireme.get(rust("pass_array").remote(array))
            assert back.dtype == array.dtype and back.shape == array.shape and (back == array).all(), kind

        for size in (0, 5, 100_000):
            contents = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            assert bireme.get(rust("pass_bytes").remote(contents)) == contents
            assert bireme.get(rust("pass_bytes").remote(bireme.put(contents))) == contents
        assert bireme.get(rust("halve", num_returns=2).remote(b"hello!")) == [b"hel", b"lo!"]
        assert bireme.get(scale.options(name="other").remote(numpy.ones(3), numpy.array([2.0]))).tolist() == [2, 2, 2]

        # A Python task calls a Rust task.
        assert (bireme.get(call_rust.remote(scale, numpy.ones(4))) == 2.0).all()

        # Mistakes.
        error = raised(lambda: rust("give_up").remote(b"no more"))
        assert isinstance(error, bireme.exceptions.TaskError) and "no more" in str(error) and "lib.rs" in str(error)
        error = raised(lambda: scale.remote(numpy.ones(1), b"bytes"))
        assert isinstance(error, TypeError) and "Array" in str(error) and "bytes" in str(error)
        error = raised(lambda: scale.remote(numpy.ones(1), bireme.put({})))
        assert isinstance(error, TypeError) and "Python" in str(error)
        error = raised(lambda: scale.remote(numpy.ones(1), {}))
        assert isinstance(error, TypeError) and "dict" in str(error)
        error = raised(lambda: scale.remote(numpy.ones(1)))
        assert "fewer arguments" in str(error)
        error = raised(lambda: rust("scael"))
        assert isinstance(error, ValueError) and "bireme_mixed::scale" in str(error)
        print("all is well")
"""


@pytest.fixture(scope="session")
def extension() -> Path:
    """The built extension."""
    command = ["cargo", "build", "--quiet", "--package", "bireme-mixed", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    [artifact] = [m for m in messages if m.get("target", {}).get("name") == "bireme_mixed" and m.get("filenames")]
    return Path(artifact["filenames"][0])


def test_arrays_go_from_a_python_task_through_a_rust_task_to_a_python_task(extension: Path, program: Any) -> None:
    output, errors = program.run(source=PROGRAM, env={"BIREME_NATIVE": str(extension)})
    assert output == "all is well\n", errors


def test_a_runtime_that_rust_starts_in_a_shared_library_is_refused(extension: Path, program: Any) -> None:
    source = """
        import bireme
        from bireme._native import start_from_rust
        print(start_from_rust())
    """
    output, errors = program.run(source=source, env={"BIREME_NATIVE": str(extension)})
    assert "bireme is linked into a shared library" in output and "python" in output, output + errors
    assert output.count("\n") == 1, "the program ran once"


def test_without_the_extension_the_error_says_what_is_missing(program: Any) -> None:
    source = """
        import bireme
        try:
            bireme.rust_function("bireme_mixed::scale")
        except ValueError as error:
            print(error)
    """
    assert "BIREME_NATIVE" in program.run(source=source)[0]


def test_an_extension_that_is_not_there_is_an_import_error(program: Any) -> None:
    source = """
        try:
            import bireme
        except ImportError as error:
            print(error)
    """
    output, _ = program.run(source=source, env={"BIREME_NATIVE": "/nowhere/libnothing.so"})
    assert "BIREME_NATIVE names /nowhere/libnothing.so" in output
