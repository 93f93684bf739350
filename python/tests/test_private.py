"""Objects of libraries that cannot tell read-only memory: they write, and nobody else sees it."""

from __future__ import annotations

import ctypes
import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import Program

import bireme
from bireme import _native, _reducers
from bireme.context import Context

# In a message, copied out of the store, and mapped.
LENGTHS = [100, 100_000, 3_000_000]


class Canvas:
    """Memory without a read-only flag, as a tensor is."""

    def __init__(self, buffer: Any) -> None:
        self.pixels = (ctypes.c_ubyte * len(buffer)).from_buffer(buffer)

    def __reduce_ex__(self, protocol: object) -> Any:
        return rebuild, (pickle.PickleBuffer(self.pixels),)

    def fill(self, value: int) -> None:
        ctypes.memset(self.pixels, value, len(self.pixels))

    def is_all(self, value: int) -> bool:
        return bytes(self.pixels) == bytes([value]) * len(self.pixels)


def rebuild(buffer: Any) -> Canvas:
    return Canvas(_reducers.writable(buffer))


@bireme.remote
def paint(canvas: Canvas) -> tuple[bool, Canvas]:
    before = canvas.is_all(1)
    canvas.fill(2)
    return before, canvas


@pytest.mark.parametrize("length", LENGTHS)
def test_what_a_reader_writes_is_its_own(runtime: Context, length: int) -> None:
    ref = bireme.put(Canvas(bytearray(b"\x01" * length)))
    mine, other = bireme.get(ref), bireme.get(ref)
    mine.fill(3)
    assert mine.is_all(3) and other.is_all(1) and bireme.get(ref).is_all(1)
    for clean, painted in bireme.get([paint.remote(ref) for _ in range(4)]):
        assert clean and painted.is_all(2)
    assert bireme.get(ref, copy=True).is_all(1) and other.is_all(1)
    assert mine.is_all(3)


def test_a_large_one_copies_only_the_pages_that_are_written(runtime: Context) -> None:
    canvas = bireme.get(bireme.put(Canvas(bytearray(8 << 20))))
    address = ctypes.addressof(canvas.pixels)
    for offset in (0, 4 << 20):
        canvas.pixels[offset] = 1
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        span = line.split()[0].split("-")
        if len(span) == 2 and int(span[0], 16) <= address < int(span[1], 16):
            assert "rw-p" in line and "bireme-arena" in line
            facts = dict(next(lines).split(":", 1) for _ in range(20))
            assert int(facts["Anonymous"].split()[0]) <= 64, facts
            return
    pytest.fail("the canvas is in no mapping of this process")


def test_arrays_stay_read_only_views(runtime: Context) -> None:
    numpy = pytest.importorskip("numpy")
    array = bireme.get(bireme.put(numpy.zeros(1_000_000)))
    assert not array.flags.writeable
    with pytest.raises(ValueError):
        array[0] = 1
    base = array
    while not isinstance(base, _native.View):
        base = base.obj if isinstance(base, memoryview) else base.base
    with pytest.raises(TypeError, match="not writable"):
        (ctypes.c_ubyte * 8).from_buffer(base)
    assert not memoryview(base.private()).readonly


def test_a_private_view_outlives_reference_and_runtime() -> None:
    bireme.init(num_cpus=1)
    canvas = bireme.get(bireme.put(Canvas(bytearray(b"\x01" * 1_000_000))))
    bireme.put(Canvas(bytearray(b"\x05" * 1_000_000)))
    assert canvas.is_all(1)
    canvas.fill(4)
    bireme.shutdown()
    assert canvas.is_all(4)


def test_a_worker_that_is_killed_by_a_signal_reports_its_python_stack(runtime: Context) -> None:
    def deeper(depth: int) -> Any:
        return deeper(depth - 1) if depth else ctypes.string_at(0)

    @bireme.remote(max_retries=0)
    def crash() -> None:
        deeper(5)

    with pytest.raises(bireme.exceptions.WorkerCrashedError, match="SIGSEGV") as raised:
        bireme.get(crash.remote())
    text = str(raised.value)
    assert "Segmentation fault" in text and "in string_at" in text and "in deeper" in text and "in crash" in text


def test_libraries_that_are_preloaded_are_seeded_anew_in_every_worker(program: Program) -> None:
    # Stand-ins: what matters is which of their functions is called, and in which process.
    program.write(
        """
        import random
        generator = random.Random(1)
        seed, rand = generator.seed, generator.random
        """,
        "torch.py",
    )
    for folder in ("tensorflow", "tensorflow/python", "tensorflow/python/ops"):
        program.write("", f"{folder}/__init__.py")
    program.write("global_generator = object()\n", "tensorflow/python/ops/stateful_random_ops.py")
    output, _ = program.run(source="""
    import bireme

    @bireme.remote
    class Dice:
        def roll(self):
            import torch
            from tensorflow.python.ops import stateful_random_ops
            return torch.rand(), stateful_random_ops.global_generator

    with bireme.init(num_cpus=3, preload=["torch", "tensorflow.python.ops.stateful_random_ops"]):
        dice = [Dice.remote() for _ in range(3)]
        rolls = bireme.get([each.roll.remote() for each in dice])
        print(len({roll for roll, _ in rolls}), {made for _, made in rolls})
    """)
    assert output == "3 {None}\n"
