"""Brings checkpoints from the machine of a trial to the folder of the search."""

import importlib
import os
from typing import Any

from recbole_ext.utils.atomic_write import write_whole


class Keeper:
    """Lives on the machine of the folder, and writes what trials send it."""

    def __init__(self, folder: str):
        self.folder = folder

    def store(self, name: str, content: bytes) -> None:
        with write_whole(os.path.join(self.folder, name)) as file:
            file.write(content)


def start_keeper(folder: str) -> Any:
    """A keeper in a process of Ray on this machine.

    Its code travels by value: to import this package there would import torch, in seconds and hundreds of MiB.
    """
    import ray
    from ray import cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    modules = [importlib.import_module(name) for name in (__name__, write_whole.__module__)]
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=here).remote(folder)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
