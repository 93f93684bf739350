"""The joblib backend that `bireme.util.joblib` registers: a batch of calls is a task."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from joblib._parallel_backends import AutoBatchingMixin, ParallelBackendBase  # type: ignore[import-untyped]

import bireme
from bireme.util._pool_engine import as_raised
from bireme.util.executor import Executor

# Arguments of so many bytes are stored once for all calls, instead of with each batch.
SHARED_BYTES_MIN = 64 << 10


class BiremeBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs the calls of `joblib.Parallel` as tasks."""

    default_n_jobs = -1
    supports_retrieve_callback = True

    def __init__(
        self, nesting_level: int | None = None, ray_remote_args: Mapping[str, Any] | None = None, **others: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level, **others)
        self._options = dict(ray_remote_args or {})
        self._executor: Executor | None = None
        # By identity: an argument, kept so that its identity stays its own, and the object that was made of it.
        self._shared: dict[int, tuple[Any, Any]] = {}
        # joblib relies on it that no callback runs when `terminate` has returned: a late one would go on with the old call.
        self._changed = threading.Condition()
        self._in_callbacks: list[int] = []

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many calls run at once."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        if not bireme.is_initialized():
            bireme.init()
        return max(1, int(bireme.cluster_resources().get("CPU", 1)) + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **unused: Any) -> int:
        """Prepares for the calls of one `Parallel`; how many run at once."""
        self.parallel = parallel
        jobs = self.effective_n_jobs(n_jobs)
        self._executor = Executor(max_workers=jobs, **self._options)
        return jobs

    def submit(self, func: Any, callback: Callable[[Future[Any]], object] | None = None) -> Future[Any]:
        """Runs a batch of calls as a task."""
        executor = self._executor
        assert executor is not None, "joblib configures a backend before it submits"
        batch, refs = self._share(func)
        future = executor.submit(_run, batch, *refs)
        if callback is not None:
            future.add_done_callback(partial(self._call_back, executor, callback))
        return future

    def _call_back(
        self, executor: Executor, callback: Callable[[Future[Any]], object], future: Future[Any]
    ) -> None:
        thread = threading.get_ident()
        with self._changed:
            if self._executor is not executor:
                return
            self._in_callbacks.append(thread)
        try:
            callback(future)
        finally:
            with self._changed:
                self._in_callbacks.remove(thread)
                self._changed.notify_all()

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """The results of a batch, or the exception of a call."""
        error = out.exception()
        if error is not None:
            raise as_raised(error)
        return out.result()

    def stop_call(self) -> None:
        """The end of one call of `Parallel`."""
        self._shared.clear()

    def terminate(self) -> None:
        """Cancels what is left."""
        with self._changed:
            executor, self._executor = self._executor, None
            mine = threading.get_ident()
            self._changed.wait_for(lambda: all(thread == mine for thread in self._in_callbacks))
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        self._shared.clear()
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancels everything after an error."""
        self.terminate()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)

    def _share(self, batch: Any) -> tuple[Any, list[Any]]:
        """The batch with places in it where large arguments were, and the objects of these."""
        items = getattr(batch, "items", None)
        if not isinstance(items, list):
            return batch, []
        refs: list[Any] = []
        places: dict[int, _Place] = {}

        def place(value: Any) -> Any:
            if not _is_large(value):
                return value
            if id(value) not in places:
                if id(value) not in self._shared:
                    self._shared[id(value)] = (value, bireme.put(value))
                places[id(value)] = _Place(len(refs))
                refs.append(self._shared[id(value)][1])
            return places[id(value)]

        batch = copy.copy(batch)
        batch.items = [
            (function, tuple(place(value) for value in args), {name: place(value) for name, value in named.items()})
            for function, args, named in items
        ]
        return batch, refs


class _Place:
    """Stands for a large argument."""

    def __init__(self, index: int) -> None:
        self.index = index


def _is_large(value: Any) -> bool:
    size = getattr(value, "nbytes", 0)
    return isinstance(size, int) and size >= SHARED_BYTES_MIN


def _run(batch: Any, *shared: Any) -> Any:
    def value_of(given: Any) -> Any:
        return shared[given.index] if isinstance(given, _Place) else given

    if shared:
        batch.items = [
            (function, tuple(map(value_of, args)), {name: value_of(value) for name, value in named.items()})
            for function, args, named in batch.items
        ]
    return batch()
