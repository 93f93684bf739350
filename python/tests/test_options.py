"""Options: names, values, defaults; what a wrong one is answered."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme._options import ActorOptions, InitOptions, MethodOptions, TaskOptions
from bireme.exceptions import NotSupportedError

KINDS = [TaskOptions, ActorOptions, MethodOptions, InitOptions]

# The names that Ray 2.60 takes.
RAY_TASK = """
label_selector fallback_strategy accelerator_type memory name num_cpus num_gpus object_store_memory
placement_group placement_group_bundle_index placement_group_capture_child_tasks resources runtime_env
scheduling_strategy enable_task_events _labels max_calls max_retries num_returns retry_exceptions
_generator_backpressure_num_objects _num_objects_per_yield
""".split()
RAY_ACTOR = """
label_selector fallback_strategy accelerator_type memory name num_cpus num_gpus object_store_memory
placement_group placement_group_bundle_index placement_group_capture_child_tasks resources runtime_env
scheduling_strategy enable_task_events _labels concurrency_groups enable_tensor_transport lifetime
max_concurrency max_restarts max_task_retries max_pending_calls namespace get_if_exists
allow_out_of_order_execution _actor_generator_backpressure_num_objects
""".split()
RAY_METHOD = """
num_returns concurrency_group max_task_retries retry_exceptions _generator_backpressure_num_objects
_num_objects_per_yield enable_task_events tensor_transport
""".split()


class OwnError(Exception):
    pass


def test_defaults_are_those_of_ray() -> None:
    task, actor, method = TaskOptions(), ActorOptions(), MethodOptions()
    assert (task.num_cpus, task.num_gpus, task.max_retries, task.num_returns, task.retry_exceptions) == (
        1,
        0,
        3,
        None,
        False,
    )
    assert (actor.num_cpus, actor.max_restarts, actor.max_task_retries, actor.max_pending_calls) == (0, 0, 0, None)
    assert (actor.concurrency(is_async=False), actor.concurrency(is_async=True)) == (1, 1000)
    assert (method.num_returns, method.max_task_retries) == (None, None)
    assert InitOptions().log_to_driver is True


@pytest.mark.parametrize(
    ("kind", "names"),
    [(TaskOptions, RAY_TASK), (ActorOptions, RAY_ACTOR), (MethodOptions, RAY_METHOD)],
    ids=["task", "actor", "method"],
)
def test_every_name_of_ray_is_known_and_none_is_the_default(kind: Any, names: list[str]) -> None:
    for name in names:
        assert kind.parse({name: None}) == kind()


@pytest.mark.parametrize(
    ("kind", "options", "attribute", "value"),
    [
        (TaskOptions, {"num_cpus": 2}, "num_cpus", 2.0),
        (TaskOptions, {"num_cpus": numpy.int64(2)}, "num_cpus", 2.0),
        (TaskOptions, {"num_cpus": numpy.float32(0.5)}, "num_cpus", 0.5),
        (TaskOptions, {"num_gpus": 0.25}, "num_gpus", 0.25),
        (TaskOptions, {"memory": 1e9}, "memory", 10**9),
        (TaskOptions, {"resources": {"licence": 2}}, "resources", {"licence": 2.0}),
        (TaskOptions, {"num_returns": 0}, "num_returns", 0),
        (TaskOptions, {"num_returns": "streaming"}, "num_returns", "streaming"),
        (TaskOptions, {"num_returns": "dynamic"}, "num_returns", "streaming"),
        (TaskOptions, {"max_retries": -1}, "max_retries", -1),
        (TaskOptions, {"retry_exceptions": [ValueError, OwnError]}, "retry_exceptions", (ValueError, OwnError)),
        (TaskOptions, {"retry_exceptions": True}, "retry_on", ("Exception",)),
        (TaskOptions, {"retry_exceptions": [ValueError]}, "retry_on", ("ValueError",)),
        (TaskOptions, {"max_buffered_items": 4}, "max_buffered_items", 4),
        (TaskOptions, {"_generator_backpressure_num_objects": 7}, "max_buffered_items", 7),
        (TaskOptions, {"_generator_backpressure_num_objects": -1}, "max_buffered_items", None),
        (TaskOptions, {"max_buffered_bytes": 1024}, "max_buffered_bytes", 1024),
        (TaskOptions, {"scheduling_strategy": "SPREAD"}, "scheduling_strategy", "SPREAD"),
        (TaskOptions, {"enable_task_events": False}, "max_retries", 3),
        (ActorOptions, {"name": "a", "get_if_exists": True}, "get_if_exists", True),
        (ActorOptions, {"lifetime": "non_detached"}, "lifetime", None),
        (ActorOptions, {"lifetime": "detached"}, "lifetime", "detached"),
        (ActorOptions, {"max_concurrency": 3}, "max_concurrency", 3),
        (ActorOptions, {"max_pending_calls": -1}, "max_pending_calls", None),
        (ActorOptions, {"max_restarts": -1}, "max_restarts", -1),
        (MethodOptions, {"num_returns": 2}, "num_returns", 2),
        (MethodOptions, {"retry_exceptions": [OwnError]}, "retry_on", (f"{__name__}.OwnError",)),
        (InitOptions, {"address": "local"}, "namespace", None),
        (InitOptions, {"logging_level": "warning"}, "logging_level", logging.WARNING),
        (InitOptions, {"logging_level": logging.DEBUG}, "logging_level", logging.DEBUG),
        (InitOptions, {"include_dashboard": False, "dashboard_port": 8265}, "num_cpus", None),
        (InitOptions, {"include_dashboard": True, "dashboard_host": "0.0.0.0"}, "num_cpus", None),
        (InitOptions, {"_system_config": {"a": 1}, "_metrics_export_port": 1, "_redis_password": "x"}, "num_cpus", None),
        (InitOptions, {"local_mode": False, "configure_logging": True, "logging_format": "%"}, "log_to_driver", True),
        (InitOptions, {"_temp_dir": "/somewhere"}, "temp_dir", "/somewhere"),
        (InitOptions, {"_memory": 2**30}, "memory", 2**30),
        (InitOptions, {"preload": ["json"]}, "preload", ("json",)),
        (TaskOptions, {"object_store_memory": 1000, "_metadata": {}, "enable_task_events": True}, "num_cpus", 1.0),
        (ActorOptions, {"object_store_memory": 1000, "_metadata": {}}, "num_cpus", 0.0),
    ],
)
def test_right_values_are_taken(kind: Any, options: dict[str, Any], attribute: str, value: object) -> None:
    assert getattr(kind.parse(options), attribute) == value
    assert getattr(kind().merge(**options), attribute) == value


@pytest.mark.parametrize(
    ("kind", "options", "error", "words"),
    [
        (TaskOptions, {"num_cpu": 1}, ValueError, ["'num_cpu'", "did you mean 'num_cpus'"]),
        (TaskOptions, {"retries": 1}, ValueError, ["'retries'", "did you mean 'max_retries'"]),
        (TaskOptions, {"max_restarts": 1}, ValueError, ["'max_restarts'", "an actor"]),
        (ActorOptions, {"max_retries": 1}, ValueError, ["'max_retries'", "a task"]),
        (ActorOptions, {"zzz": 1}, ValueError, ["'zzz'", "max_concurrency"]),
        (MethodOptions, {"num_cpus": 1}, ValueError, ["'num_cpus'", "a method"]),
        (InitOptions, {"num_cores": 1}, ValueError, ["'num_cores'", "init()"]),
        (InitOptions, {"include_dashbord": True}, ValueError, ["'include_dashbord'", "did you mean 'include_dashboard'"]),
        (InitOptions, {"preloads": []}, ValueError, ["'preloads'", "did you mean 'preload'"]),
        (InitOptions, {"preload": "json"}, TypeError, ["'preload'", "a list of names"]),
        (InitOptions, {"object_spilling_directory": "/x"}, NotSupportedError, ["'object_spilling_directory'"]),
        (TaskOptions, {"num_cpus": -1}, ValueError, ["'num_cpus'", "-1", "0 or more"]),
        (TaskOptions, {"num_cpus": "2"}, TypeError, ["'num_cpus'", "'2'", "str"]),
        (TaskOptions, {"num_cpus": True}, TypeError, ["'num_cpus'", "bool"]),
        (TaskOptions, {"num_cpus": float("nan")}, ValueError, ["'num_cpus'", "nan"]),
        (TaskOptions, {"num_cpus": 0.00001}, ValueError, ["0.0001"]),
        (TaskOptions, {"num_gpus": 1.5}, ValueError, ["'num_gpus'", "whole"]),
        (TaskOptions, {"resources": {"CPU": 1}}, ValueError, ["'CPU'", "'num_cpus'"]),
        (TaskOptions, {"resources": {"licence": -1}}, ValueError, ["licence", "-1"]),
        (TaskOptions, {"resources": ["licence"]}, TypeError, ["'resources'", "dictionary"]),
        (TaskOptions, {"num_returns": -1}, ValueError, ["'num_returns'", "-1"]),
        (TaskOptions, {"num_returns": "stream"}, ValueError, ["'streaming'"]),
        (TaskOptions, {"num_returns": 1.5}, TypeError, ["'num_returns'", "1.5"]),
        (TaskOptions, {"max_retries": -2}, ValueError, ["'max_retries'", "-1 for no limit"]),
        (TaskOptions, {"retry_exceptions": [3]}, ValueError, ["'retry_exceptions'", "exception types"]),
        (TaskOptions, {"retry_exceptions": ValueError}, TypeError, ["'retry_exceptions'", "list"]),
        (TaskOptions, {"name": 3}, TypeError, ["'name'", "string"]),
        (TaskOptions, {"_generator_backpressure_num_objects": 0}, ValueError, ["_generator_backpressure_num_objects"]),
        (TaskOptions, {"max_buffered_bytes": 0}, ValueError, ["'max_buffered_bytes'"]),
        (TaskOptions, {"scheduling_strategy": "PACK"}, ValueError, ["'SPREAD'"]),
        (
            TaskOptions,
            {"scheduling_strategy": object()},
            TypeError,
            ["'scheduling_strategy'", "PlacementGroupSchedulingStrategy"],
        ),
        (TaskOptions, {"accelerator_type": "A100"}, NotSupportedError, ["'accelerator_type'", "not supported yet"]),
        (TaskOptions, {"label_selector": {"a": "b"}}, NotSupportedError, ["'label_selector'"]),
        (TaskOptions, {"runtime_env": {"pip": ["x"]}}, NotSupportedError, ["pip", "not supported yet"]),
        (ActorOptions, {"lifetime": "forever"}, ValueError, ["'lifetime'", "forever"]),
        (ActorOptions, {"concurrency_groups": {"io": 2}}, NotSupportedError, ["'concurrency_groups'"]),
        (ActorOptions, {"get_if_exists": True}, ValueError, ["'get_if_exists'", "'name'"]),
        (ActorOptions, {"get_if_exists": 1, "name": "a"}, TypeError, ["'get_if_exists'", "True or False"]),
        (ActorOptions, {"max_concurrency": 0}, ValueError, ["'max_concurrency'", "1 or more"]),
        (ActorOptions, {"max_pending_calls": 0}, ValueError, ["'max_pending_calls'"]),
        (MethodOptions, {"concurrency_group": "io"}, NotSupportedError, ["'concurrency_group'"]),
        (InitOptions, {"address": "ray://10.0.0.1:1"}, NotSupportedError, ["'address'", "10.0.0.1"]),
        (InitOptions, {"address": "somewhere"}, ValueError, ["'address'", "'auto'"]),
        (InitOptions, {"local_mode": True}, NotSupportedError, ["'local_mode'"]),
        (InitOptions, {"logging_level": "loud"}, ValueError, ["'logging_level'", "INFO"]),
    ],
)
def test_wrong_ones_are_named_with_what_is_right(
    kind: Any, options: dict[str, Any], error: type[Exception], words: list[str]
) -> None:
    for make in (kind.parse, lambda given: kind().merge(**given)):
        with pytest.raises(error) as caught:
            make(options)
        for word in words:
            assert word in str(caught.value)


def test_merge_keeps_the_rest_and_leaves_the_first_alone() -> None:
    first = TaskOptions.parse({"num_cpus": 2, "name": "a"})
    second = first.merge(name="b", max_retries=0)
    assert (second.num_cpus, second.name, second.max_retries) == (2, "b", 0)
    assert (first.name, first.max_retries) == ("a", 3)
    assert second.merge(num_cpus=None).num_cpus == 1


def test_options_cannot_be_changed_and_can_be_compared_pickled_and_shown() -> None:
    options = TaskOptions(
        num_cpus=2, resources={"a": 1}, retry_exceptions=[ValueError], runtime_env={"env_vars": {"A": "1"}}
    )
    with pytest.raises(AttributeError):
        options.num_cpus = 3.0
    with pytest.raises(TypeError):
        options.resources["a"] = 3  # type: ignore[index]
    again = pickle.loads(pickle.dumps(options))
    assert again == options and hash(again) == hash(options) and again.resources == {"a": 1.0}
    assert again != TaskOptions() and "num_cpus=2.0" in repr(options) and "max_retries" not in repr(options)


@pytest.mark.parametrize("kind", KINDS)
def test_each_attribute_is_annotated_and_has_a_check(kind: Any) -> None:
    assert set(kind._defaults) == {name for name in kind.__annotations__ if not name.startswith("_")}
    assert set(kind._defaults) <= set(kind._checks)


@given(
    st.sampled_from(KINDS),
    st.text(max_size=12),
    st.one_of(st.none(), st.integers(), st.text(), st.floats(), st.lists(st.integers())),
)
def test_whatever_is_given_is_taken_or_refused_with_a_typed_error(kind: Any, name: str, value: object) -> None:
    try:
        kind.parse({name: value})
    except (ValueError, TypeError) as error:
        assert repr(name) in str(error)


@given(
    st.sampled_from([(kind, name) for kind in KINDS for name in kind._checks]),
    st.one_of(st.integers(), st.text(), st.floats(), st.binary()),
)
def test_any_value_of_a_known_option_is_taken_or_refused_by_its_name(option: tuple[Any, str], value: object) -> None:
    kind, name = option
    try:
        kind.parse({name: value})
    except (ValueError, TypeError) as error:
        assert name in str(error)
