"""Notebooks with a real kernel: cells that are run again, interrupted and restarted, frames and plots.

Shorter ones are a program of the gate, ``tests/programs/python/notebook.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import nbformat
import pytest
from conftest import await_end, is_alive
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

PATIENCE_S = 120


class Notebook:
    """A notebook whose cells are written while it runs."""

    def __init__(self) -> None:
        self.book = nbformat.v4.new_notebook()
        self.client = NotebookClient(self.book, timeout=PATIENCE_S, kernel_name="python3")

    async def cell(self, source: str) -> Any:
        """Runs one more cell."""
        cell = nbformat.v4.new_code_cell(source)
        self.book.cells.append(cell)
        await self.client.async_execute_cell(cell, len(self.book.cells) - 1)
        return cell

    async def says(self, source: str) -> str:
        """What one more cell prints."""
        return text(await self.cell(source))

    async def interrupt(self, source: str) -> None:
        """Runs a cell that says ``waiting``, and interrupts it there."""
        running = asyncio.create_task(self.cell(source))
        while not (self.book.cells and self.book.cells[-1].source == source and "waiting" in text(self.book.cells[-1])):
            assert not running.done(), running
            await asyncio.sleep(0)
        await self.client.km.interrupt_kernel()
        with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
            await running


def text(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs).strip()


@asynccontextmanager
async def notebook() -> AsyncIterator[Notebook]:
    made = Notebook()
    async with made.client.async_setup_kernel():
        yield made


def of_kernel(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is a coroutine."""

    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@of_kernel
async def test_what_is_defined_again_is_used_by_everything_that_comes_after() -> None:
    async with notebook() as book:
        await book.cell("import bireme, dataclasses\nbireme.init(num_cpus=2)")
        for number in range(40):
            await book.cell(f"SCALE = {number}\ndef helper(x):\n    return x * SCALE")
            await book.cell(
                "@dataclasses.dataclass\nclass Point:\n    x: int\n"
                f"    def name(self):\n        return 'point {number} at ' + str(self.x)\n"
            )
            await book.cell("@bireme.remote\ndef f(point):\n    return helper(point.x), point.name(), Point(helper(2))")
            await book.cell(
                f"@bireme.remote\nclass Counter:\n    step = {number}\n    def __init__(self):\n        self.n = 0\n"
                "    def add(self):\n        self.n += self.step\n        return self.n"
            )
            said = await book.says(
                "a, b, c = bireme.get(f.remote(Point(3)))\nassert type(c) is Point\nprint(a, b, c.x)\n"
                "counter = Counter.remote()\nprint(bireme.get([counter.add.remote(), counter.add.remote()]))"
            )
            assert said == f"{3 * number} point {number} at 3 {2 * number}\n[{number}, {2 * number}]"


INTERRUPTED = {
    "get": "print('waiting', flush=True)\nbireme.get(endless.remote())",
    "wait": "print('waiting', flush=True)\nbireme.wait([endless.remote()])",
    "stream": "items = stream.remote()\nprint(bireme.get(next(items)), 'waiting', flush=True)\nnext(items)",
    "actor": "print('waiting', flush=True)\nbireme.get(actor.endless.remote())",
    "work": "print('waiting', flush=True)\nwhile True:\n    bireme.get([small.remote(n) for n in range(100)])",
    "puts": "print('waiting', flush=True)\nwhile True:\n    bireme.put(bytes(10_000_000))",
}


@of_kernel
async def test_a_kernel_works_on_after_interrupts_of_every_kind() -> None:
    async with notebook() as book:
        await book.cell(
            "import bireme, time\nbireme.init(num_cpus=2, object_store_memory=100_000_000)\n"
            "@bireme.remote(num_cpus=0)\ndef endless():\n    time.sleep(1000)\n"
            "@bireme.remote(num_cpus=0, num_returns='streaming')\ndef stream():\n    yield 1\n    time.sleep(1000)\n"
            "@bireme.remote\ndef small(n):\n    return n\n"
            "@bireme.remote(num_cpus=0, max_concurrency=8)\nclass Actor:\n"
            "    def endless(self):\n        time.sleep(1000)\n    def name(self):\n        return 'actor'\n"
            "actor = Actor.remote()\n"
        )
        for _ in range(3):
            for name, source in INTERRUPTED.items():
                await book.interrupt(source)
                said = await book.says(
                    "print(bireme.get([small.remote(1), actor.name.remote(), bireme.put('kept')]))\n"
                )
                assert said == "[1, 'actor', 'kept']", name


@of_kernel
async def test_a_kernel_that_is_restarted_leaves_nothing_and_starts_afresh() -> None:
    async with notebook() as book:
        for number in range(5):
            said = await book.says(
                "import bireme, os, time\nbireme.init(num_cpus=2)\n"
                "@bireme.remote(num_cpus=0)\nclass Actor:\n    def pid(self):\n        return os.getpid()\n"
                "actors = [Actor.options(name=f'a{n}').remote() for n in range(3)]\n"
                "@bireme.remote\ndef busy():\n    time.sleep(1000)\n"
                "running = [busy.remote() for _ in range(2)]\n"
                "print(*bireme.get([actor.pid.remote() for actor in actors]))"
            )
            pids = [int(pid) for pid in said.split()]
            assert len(pids) == 3 and all(map(is_alive, pids)), (number, said)
            await book.client.km.restart_kernel(now=number % 2 == 0)
            await book.client.kc.wait_for_ready(timeout=PATIENCE_S)
            for pid in pids:
                await_end(pid)


@of_kernel
async def test_frames_are_grouped_and_plotted() -> None:
    async with notebook() as book:
        await book.cell("%matplotlib inline\nimport bireme, numpy as np, pandas as pd, matplotlib.pyplot as plt")
        await book.cell("bireme.init(num_cpus=2)")
        await book.cell(
            "@bireme.remote\ndef load(seed):\n    r = np.random.default_rng(seed)\n"
            "    return pd.DataFrame({'key': r.integers(0, 10, 200_000), 'value': r.integers(0, 9, 200_000)})\n"
            "@bireme.remote\ndef group(frame):\n    return frame.groupby('key').value.agg(['sum', 'count'])\n"
            "frames = [load.remote(seed) for seed in range(8)]"
        )
        said = await book.says(
            "table = pd.concat(bireme.get([group.remote(f) for f in frames])).groupby(level=0).sum()\n"
            "whole = pd.concat(bireme.get(frames)).groupby('key').value.agg(['sum', 'count'])\n"
            "assert (table == whole).all().all()\nprint(len(table), int(table['count'].sum()))"
        )
        assert said == "10 1600000"
        shown = await book.cell("table")
        assert "text/html" in shown.outputs[0]["data"]
        plotted = await book.cell("table['sum'].plot.bar();")
        assert any("image/png" in output.get("data", {}) for output in plotted.outputs), plotted.outputs
        drawn = await book.cell(
            "from IPython.display import Image, display\n"
            "@bireme.remote\ndef draw(frame):\n    import io\n    import matplotlib\n    matplotlib.use('Agg')\n"
            "    import matplotlib.pyplot as plt\n    figure, axes = plt.subplots()\n    axes.hist(frame.value)\n"
            "    file = io.BytesIO()\n    figure.savefig(file, format='png')\n    plt.close(figure)\n    return file.getvalue()\n"
            "for picture in bireme.get([draw.remote(f) for f in frames[:4]]):\n    display(Image(picture))"
        )
        assert sum("image/png" in output.get("data", {}) for output in drawn.outputs) == 4, drawn.outputs
