"""A notebook: a function is defined twice, a cell is interrupted, the kernel is restarted."""
# modes: embedded
# expect: first 1, then 2
# expect: interrupted, and 3 after it
# expect: restarted: 4

import asyncio
import subprocess

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

CELLS = {
    "first": "import bireme\n@bireme.remote\ndef f():\n    return 1\nprint(bireme.get(f.remote()))",
    "again": "@bireme.remote\ndef f():\n    return 2\nprint(bireme.get(f.remote()))",
    "endless": (
        "import time\n@bireme.remote\ndef endless():\n    time.sleep(1000)\nref = endless.remote()\n"
        "print('waiting', flush=True)\nbireme.get(ref)"
    ),
    "after": "bireme.cancel(ref)\n@bireme.remote\ndef g():\n    return 3\nprint(bireme.get(g.remote()))",
    "restarted": "import bireme\nprint(bireme.get(bireme.put(4)))",
}


def text(cell):
    return "".join(output.get("text", "") for output in cell.outputs).strip()


async def main():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS.values()])
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    cells = dict(zip(CELLS, notebook.cells, strict=True))
    run = {name: (lambda cell=cell, index=index: client.async_execute_cell(cell, index)) for index, (name, cell) in enumerate(cells.items())}
    async with client.async_setup_kernel(stderr=subprocess.DEVNULL):
        for name in ("first", "again"):
            await run[name]()
        print(f"first {text(cells['first'])}, then {text(cells['again'])}")
        endless = asyncio.create_task(run["endless"]())
        while "waiting" not in text(cells["endless"]):
            await asyncio.sleep(0)
        await client.km.interrupt_kernel()
        try:
            await endless
        except CellExecutionError as error:
            assert "KeyboardInterrupt" in str(error), error
        await run["after"]()
        print(f"interrupted, and {text(cells['after'])} after it")
    async with client.async_setup_kernel(stderr=subprocess.DEVNULL):
        await run["restarted"]()
        print(f"restarted: {text(cells['restarted'])}")


asyncio.run(main())
