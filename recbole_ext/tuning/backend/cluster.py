"""Start Ray or join a cluster; the CPUs and GPUs of a trial; the process that stores checkpoints."""

import contextlib
import importlib
import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
import torch
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from recbole_ext.errors import InputError
from recbole_ext.tuning.options import SearchOptions
from recbole_ext.utils.atomic_write import write_whole
from recbole_ext.utils.signals import SigtermReceived

ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal stores the results
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the report of a failure has no score
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # SIGINT ends the search
    "RAY_AIR_NEW_OUTPUT": "0",  # no banner
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a trial without a GPU sees none, in every version of Ray
    "RAY_USAGE_STATS_ENABLED": "0",  # send no statistics to the makers of Ray
    "RAY_worker_niceness": "0",  # Ray's low default priority stops the trials when another program is busy
}
# Trials whose processes start at the same time; Ray's default for a searcher is one.
MAX_PENDING_TRIALS = {"TUNE_MAX_PENDING_TRIALS_PG": "16"}
START_ATTEMPTS = 4


# ---------------------------------------------------------------------- starting Ray


@contextlib.contextmanager
def running_ray(options: SearchOptions, config: Any, data_bytes: int) -> Iterator[dict[str, float]]:
    """Start Ray for this block, join a cluster, or use the Ray that the calling program has started.

    Args:
        options: of the search.
        config: of the model.
        data_bytes: size of the shared data, which determines the size of the object store.

    Yields:
        CPUs and GPUs of a trial.

    Raises:
        InputError: no cluster answers at the address, or a trial needs more than a machine has.
        SigtermReceived: SIGTERM was received while Ray started.
    """
    pending = MAX_PENDING_TRIALS if options.search_alg == "random" else {}
    with _environment({**ENVIRONMENT, **pending}), contextlib.ExitStack() as cleanup:
        if ray.is_initialized():
            yield trial_resources(options, config, _cluster_machines())
            return
        restore_sigterm = _sigterm_restorer()
        cleanup.callback(restore_sigterm)
        cleanup.callback(ray.shutdown)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if options.address is None:
                machine = this_machine()
                trial_resources(options, config, [machine])  # fail before Ray starts, which takes seconds
                store = 256 * 2**20 + 3 * data_bytes  # the data, and checkpoints before they are stored
                count: dict[str, Any] = {"num_cpus": int(machine["CPU"]), "num_gpus": int(machine["GPU"])}
                with _sigint_deferred():
                    start_ray(include_dashboard=False, object_store_memory=store, **count, **quiet)
            else:
                with _sigint_deferred():
                    ray.init(options.address, **quiet)
        except SystemExit as error:  # raised by Ray's own handler of SIGTERM while it starts
            raise SigtermReceived from error
        except InputError:
            raise
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            reason = str(error).strip().splitlines()[0].partition(". ")[0].rstrip(".")
            if options.address:
                raise InputError(f"address is '{options.address}', where no Ray cluster answers: {reason}.") from error
            raise InputError(f"Ray cannot be started: {reason}.") from error
        restore_sigterm()
        yield trial_resources(options, config, _cluster_machines())


def start_ray(**settings: Any) -> None:
    """Start Ray; try again if a busy machine needs more than the 30 seconds that Ray allows."""
    for attempts_left in reversed(range(START_ATTEMPTS)):
        try:
            ray.init("local", **settings)
            return
        except Exception as error:  # Ray raises no subclass
            if not attempts_left or "timed out during startup" not in str(error):
                raise
            ray.shutdown()


def _sigterm_restorer() -> Callable[[], None]:
    """A function that restores the present handler of SIGTERM, which Ray replaces when it starts and when it stops."""
    handler = signal.getsignal(signal.SIGTERM)

    def restore() -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)

    return restore


@contextlib.contextmanager
def _sigint_deferred() -> Iterator[None]:
    """Handle SIGINT after this block, because the process can crash at its exit if the start of Ray is interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, received = signal.getsignal(signal.SIGINT), []
    signal.signal(signal.SIGINT, lambda *_: received.append(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if received:
        signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for this block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


# ---------------------------------------------------------------------- resources


def this_machine() -> dict[str, float]:
    """CPUs that this process may use, within the limits of a container, and GPUs that torch can use."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cpus = min(cpus, math.ceil(int(quota) / int(period)))  # ValueError: quota is "max", which means no limit
    return {"CPU": cpus, "GPU": torch.cuda.device_count()}


def _cluster_machines() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def trial_resources(options: SearchOptions, config: Any, machines: list[dict[str, float]]) -> dict[str, float]:
    """CPUs and GPUs of a trial.

    Args:
        options: of the search.
        config: of the model; with `use_gpu: False` a trial uses no GPU.
        machines: CPUs and GPUs of each machine of the cluster.

    Raises:
        InputError: no machine has so many.
    """
    largest = {kind: max((machine.get(kind, 0) for machine in machines), default=0) for kind in ("CPU", "GPU")}
    gpus = options.gpus_per_trial
    if gpus and not config["use_gpu"]:
        raise InputError(f"gpus_per_trial is {gpus:g}, but use_gpu is False; leave one of them out.")
    if gpus is None:
        gpus = 1 if largest["GPU"] >= 1 and config["use_gpu"] else 0
    resources = {"CPU": options.cpus_per_trial, "GPU": gpus}
    for kind, amount in resources.items():
        if amount > largest[kind]:
            machine = "this machine" if len(machines) == 1 else f"the largest of {len(machines)} machines"
            raise InputError(f"{kind.lower()}s_per_trial is {amount:g}, but {machine} has {largest[kind]:g} {kind}s.")
    if not any(all(machine.get(kind, 0) >= amount for kind, amount in resources.items()) for machine in machines):
        raise InputError(f"no machine has {resources['CPU']:g} CPUs and {gpus:g} GPUs together; request fewer.")
    if gpus > 1:
        raise InputError(f"gpus_per_trial is {gpus:g}, but a trial trains on one GPU; it should be at most 1.")
    return {kind: amount for kind, amount in resources.items() if amount}


# ---------------------------------------------------------------------- checkpoints


class CheckpointStore:
    """Receives checkpoints from the trials and writes them into the folder of the search."""

    def __init__(self, folder: str):
        self.folder = folder

    def store(self, name: str, content: bytes) -> None:
        with write_whole(os.path.join(self.folder, name)) as file:
            file.write(content)


def start_checkpoint_store(folder: str) -> Any:
    """A `CheckpointStore` in a Ray process on this machine, where the folder is.

    Its code is sent by value, because importing this package there would load torch: seconds and hundreds of MiB.
    """
    modules = [importlib.import_module(name) for name in (__name__, write_whole.__module__)]
    this_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return ray.remote(CheckpointStore).options(num_cpus=0, scheduling_strategy=this_node).remote(folder)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
