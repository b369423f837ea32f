"""Starting Ray or joining a cluster, and what a trial takes of it."""

import contextlib
import importlib
import importlib.util
import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from recbole_ext.errors import InputError
from recbole_ext.tuning.options import Options
from recbole_ext.utils.signals import SigtermReceived

OLDEST = "2.45"
ENVIRONMENT = {
    # results are kept by the journal; the report of a failure has no score on purpose; SIGINT ends the search
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # without it Ray announces itself in a box
    "RAY_AIR_NEW_OUTPUT": "0",
    # a trial without a GPU sees none, on every version of Ray; nothing is sent to Ray's makers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # trials have the priority of this process; by default they have so little that another busy program stops them
    "RAY_worker_niceness": "0",
}
STARTING = "16"  # processes that start at one time, where points are known before; by default one after the other
STARTS = 4  # attempts to start Ray


def check_installed(options: Options) -> None:
    """See to it that Ray and what `search_alg` needs are there; `InputError` with the command that installs them."""
    if importlib.util.find_spec("ray") is None:
        raise InputError(f'the search needs Ray, which is not installed; run: pip install "ray[tune]>={OLDEST}"')
    import ray

    if [int(part) for part in ray.__version__.split(".")[:2]] < [int(part) for part in OLDEST.split(".")]:
        raise InputError(
            f'the search needs Ray {OLDEST}, not {ray.__version__}; run: pip install "ray[tune]>={OLDEST}"'
        )
    name = options.search_alg
    if name != "random" and importlib.util.find_spec(name) is None:
        raise InputError(f"search_alg is {name}, a package that is not installed; run: pip install {name}")
    try:
        importlib.import_module("ray.tune")
    except ImportError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f'Ray Tune cannot be imported ({reason}); run: pip install "ray[tune]>={OLDEST}"') from error


def this_machine() -> dict[str, float]:
    """CPUs that this process may use, within the limits of a container, and GPUs that torch can."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cpus = min(cpus, math.ceil(int(quota) / int(period)))  # ValueError: "max", no limit
    return {"CPU": cpus, "GPU": torch.cuda.device_count()}


@contextlib.contextmanager
def running(options: Options, config: Any, data_bytes: int) -> Iterator[dict[str, float]]:
    """Ray, started for this block or joined.

    Args:
        options: of the search.
        config: of the model.
        data_bytes: size of what all trials share, for the size of the object store.

    Yields:
        CPUs and GPUs that a trial takes.

    Raises:
        InputError: there is no cluster at the address, or not what a trial is to take.
        SigtermReceived: by SIGTERM, while Ray starts.
    """
    import ray

    pending = {} if options.search_alg != "random" else {"TUNE_MAX_PENDING_TRIALS_PG": STARTING}
    with _environment(pending), contextlib.ExitStack() as at_the_end:
        if ray.is_initialized():  # the program that called us has its own
            yield of_a_trial(options, config, _machines(ray))
            return
        take_back = _sigterm()
        at_the_end.callback(take_back)
        at_the_end.callback(ray.shutdown)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if options.address is None:
                here = this_machine()
                of_a_trial(options, config, [here])  # before seconds are spent on starting
                store = 256 * 2**20 + 3 * data_bytes  # the data, and checkpoints on their way
                numbers: dict[str, Any] = {"num_cpus": int(here["CPU"]), "num_gpus": int(here["GPU"])}
                with _sigint_after():
                    start(ray, include_dashboard=False, object_store_memory=store, **numbers, **quiet)
            else:
                with _sigint_after():
                    ray.init(options.address, **quiet)
        except SystemExit as end:  # how Ray answers SIGTERM while it starts
            raise SigtermReceived from end
        except InputError:
            raise
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            text = str(error).strip().splitlines()[0].partition(". ")[0].rstrip(".")
            where = f"address is '{options.address}', where no Ray cluster answers" if options.address else "Ray"
            raise InputError(f"{where}: {text}.") from error
        take_back()
        yield of_a_trial(options, config, _machines(ray))


def _sigterm() -> Callable[[], None]:
    """What puts the handler of SIGTERM back that there is now: Ray sets its own as it starts, and none as it ends."""
    handler = signal.getsignal(signal.SIGTERM)

    def take_back() -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)

    return take_back


@contextlib.contextmanager
def _sigint_after() -> Iterator[None]:
    """Handle SIGINT after this block: an interrupted start of Ray can crash the process when it exits."""
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


def start(ray: Any, **how: Any) -> None:
    """Start Ray, again if a busy machine did not do it within the 30 seconds that Ray allows."""
    for left in reversed(range(STARTS)):
        try:
            ray.init("local", **how)
            return
        except Exception as error:  # Ray raises just this class
            if not left or "timed out during startup" not in str(error):
                raise
            ray.shutdown()


def _machines(ray: Any) -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextlib.contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    values = {**ENVIRONMENT, **more}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def of_a_trial(options: Options, config: Any, machines: list[dict[str, float]]) -> dict[str, float]:
    """CPUs and GPUs that a trial takes.

    Args:
        options: of the search.
        config: of the model; with `use_gpu: False` a trial takes no GPU.
        machines: what each of them has.

    Raises:
        InputError: no machine of the cluster has as much.
    """
    most = {kind: max((machine.get(kind, 0) for machine in machines), default=0) for kind in ("CPU", "GPU")}
    gpus = options.gpus_per_trial
    if gpus and not config["use_gpu"]:
        raise InputError(f"gpus_per_trial is {gpus:g}, but use_gpu is False; leave one of them out.")
    if gpus is None:
        gpus = 1 if most["GPU"] >= 1 and config["use_gpu"] else 0
    wanted = {"CPU": options.cpus_per_trial, "GPU": gpus}
    for kind, amount in wanted.items():
        if amount > most[kind]:
            machine = "this machine" if len(machines) == 1 else f"the largest of {len(machines)} machines"
            raise InputError(f"{kind.lower()}s_per_trial is {amount:g}, but {machine} has {most[kind]:g} {kind}s.")
    if not any(all(machine.get(kind, 0) >= amount for kind, amount in wanted.items()) for machine in machines):
        raise InputError(f"no machine has {wanted['CPU']:g} CPUs and {wanted['GPU']:g} GPUs together; ask for less.")
    if gpus > 1:
        raise InputError(f"gpus_per_trial is {gpus:g}, but a trial trains on one GPU; give at most 1.")
    return {kind: amount for kind, amount in wanted.items() if amount}
