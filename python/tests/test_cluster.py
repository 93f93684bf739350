"""Clusters on hosts with addresses of their own, as `bireme start` makes them: what is Python's own there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 120

pytestmark = pytest.mark.slow


class Hosts:
    """Hosts on this machine, each with a state directory of its own; they go with the process that holds them."""

    def __init__(self, count: int, folder: Path) -> None:
        command = ["cargo", "run", "--quiet", "--package", "bireme-netlab", "--", "hold", str(count)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.folder = folder
        self.holder = subprocess.Popen(command, cwd=REPOSITORY, **pipes)
        assert self.holder.stdout is not None
        lines = [self.holder.stdout.readline().split() for _ in range(count)]
        self.addresses = {int(host): address for host, address, _ in lines}
        self.namespaces = {int(host): namespace for host, _, namespace in lines}
        for host in self.addresses:
            self.state(host).mkdir(mode=0o700)

    def state(self, host: int) -> Path:
        """The home of the user on a host."""
        return self.folder / f"h{host}"

    @property
    def head(self) -> str:
        """Where the first node listens."""
        return f"{self.addresses[1]}:6400"

    def start(self, host: int, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Starts a program on a host."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("BIREME_", "XDG_"))}
        environment |= {
            "HOME": str(self.state(host)),
            "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
            "BIREME_STATE_DIRECTORY": str(self.state(host)),
            "BIREME_PYTHON": sys.executable,
            "BIREME_NUM_CPUS": "1",
            "BIREME_OBJECT_STORE_MEMORY": "300MB",
            "BIREME_RESOURCES": f"h{host}=1000",
        }
        return subprocess.Popen(
            ["ip", "netns", "exec", self.namespaces[host], *command],
            env=environment | variables,
            cwd=self.state(host),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, host: int, *command: str, **variables: str) -> str:
        """Runs a program on a host, which must succeed; what it printed."""
        process = self.start(host, *command, **variables)
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, f"{command}: {output}\n{errors}"
        return output

    def program(self, host: int, source: str, **variables: str) -> list[Any]:
        """Runs a Python program on a host; what it printed, each line a value."""
        output = self.run(host, sys.executable, "-c", textwrap.dedent(source), **variables)
        return [json.loads(line) for line in output.splitlines() if line.startswith(("[", "{", '"'))]

    def cluster(self, members: int) -> None:
        """Starts a head, that many further nodes, and makes a token for programs without a node."""
        self.run(1, "bireme", "start", "--host", self.addresses[1], "--port", "6400")
        for purpose in ("node", "client"):
            self.run(1, "bireme", "token", "create", "--for", purpose, "--output", str(self.folder / purpose))
        for host in range(2, members + 2):
            self.run(host, "bireme", "start", "--address", self.head, "--token-file", str(self.folder / "node"))

    def end(self) -> None:
        """Ends everything that runs on the hosts, and them."""
        assert self.holder.stdin is not None and self.holder.stdout is not None
        self.holder.stdin.close()
        self.holder.wait(timeout=PATIENCE_S)
        self.holder.stdout.close()


@pytest.fixture
def hosts(short_path: Path) -> Iterator[Hosts]:
    """Three hosts."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("bireme", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]) is None:
        pytest.skip("the package was installed without its command")
    made = Hosts(3, short_path)
    try:
        yield made
    finally:
        made.end()


def test_the_three_commands_of_the_readme_run_its_program_on_both_machines(hosts: Hosts) -> None:
    readme = (REPOSITORY / "README.md").read_text()
    section = readme.split("\n## A cluster in three commands\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = [line.replace("10.0.0.1", hosts.addresses[1]) for block in blocks for line in block.splitlines()]
    first, second, python = (line.split() for line in lines[:3])
    token = re.search(r"--token-file (\S+)", hosts.run(1, *first))
    assert token is not None
    shutil.copy(token[1], hosts.state(2) / "node.token")
    hosts.run(2, *second)
    python[0], python[1] = sys.executable, str(REPOSITORY / python[1])
    said = hosts.run(2, *python)
    assert sum(int(count) for count in re.findall(r"took (\d) of 8", said)) == 8, said


def test_a_program_without_a_node_sends_and_gets_large_arrays(hosts: Hosts) -> None:
    hosts.cluster(1)
    source = f"""
        import json, numpy, bireme
        bireme.init(address="{hosts.head}")
        @bireme.remote(resources={{"h2": 1}})
        def reverse(values):
            return values[::-1].copy()
        values = numpy.arange(12_500_000, dtype=numpy.float64)
        back = bireme.get(reverse.remote(values))
        print(json.dumps([bool((back[::-1] == values).all()), int(back.nbytes)]))
        @bireme.remote(resources={{"h2": 1}})
        class Sum:
            def __init__(self): self.total = 0
            def add(self, n): self.total += n; return self.total
        adder = Sum.remote()
        print(json.dumps(bireme.get([adder.add.remote(n) for n in range(5)])))
    """
    assert hosts.program(3, source, BIREME_TOKEN_FILE=str(hosts.folder / "client")) == [
        [True, 100_000_000],
        [0, 1, 3, 6, 10],
    ]


def test_a_working_directory_is_unpacked_once_on_each_node(hosts: Hosts) -> None:
    hosts.cluster(1)
    (hosts.state(1) / "code").mkdir()
    (hosts.state(1) / "code" / "helper.py").write_text("VALUE = 41\n")
    (hosts.state(1) / "more").mkdir()
    (hosts.state(1) / "more" / "extra.py").write_text("VALUE = 1\n")
    source = f"""
        import json, os, bireme
        bireme.init(address="{hosts.head}", runtime_env={{"working_dir": "code", "py_modules": ["more/extra.py"]}})
        def look():
            import extra, helper
            return helper.VALUE + extra.VALUE, os.getcwd(), os.getpid()
        found = []
        for host in ("h1", "h2"):
            task = bireme.remote(max_calls=1, resources={{host: 1}})(look)
            found += bireme.get([task.remote(), task.remote()])
        print(json.dumps(found))
    """
    [found] = hosts.program(1, source)
    assert [value for value, _, _ in found] == [42] * 4
    assert len({pid for _, _, pid in found}) == 4, "each ran in a process of its own"
    folders = [folder for _, folder, _ in found]
    assert folders[0] == folders[1] and folders[2] == folders[3] and folders[0] != folders[2], folders


def test_names_are_of_a_namespace_and_detached_actors_are_found_from_other_hosts(hosts: Hosts) -> None:
    hosts.cluster(1)
    make = f"""
        import json, bireme
        bireme.init(address="{hosts.head}", namespace="shared")
        @bireme.remote(resources={{"h2": 1}})
        class Counter:
            def __init__(self): self.total = 0
            def add(self): self.total += 1; return self.total
        counter = Counter.options(name="counter", lifetime="detached").remote()
        print(json.dumps([bireme.get(counter.add.remote())]))
    """
    look = f"""
        import json, bireme
        bireme.init(address="{hosts.head}", namespace="other")
        try:
            bireme.get_actor("counter")
        except ValueError as error:
            print(json.dumps("not here"))
        counter = bireme.get_actor("counter", namespace="shared")
        print(json.dumps([bireme.get(counter.add.remote())]))
    """
    assert hosts.program(1, make) == [[1]]
    assert hosts.program(3, look, BIREME_TOKEN_FILE=str(hosts.folder / "client")) == ["not here", [2]]
    assert hosts.program(2, look) == ["not here", [3]]
