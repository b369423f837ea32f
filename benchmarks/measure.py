"""Shared by the scripts: median times of alternating runs, peak memory in separate processes, and versions.

To add a benchmark, write a script that parses `arguments(...)`, passes its variants to `medians`, measures memory with
`peak_of_process`, and writes a table with `provenance` to benchmarks/results. `meantime_step.py` is a short example.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

Run = Callable[[], object]


def training_step(
    loss: Callable[[], torch.Tensor], model: torch.nn.Module, optimizer: type[torch.optim.Optimizer] = torch.optim.Adam
) -> Run:
    """Forward, backward and the optimizer, as a function that does it once."""
    updates = optimizer(model.train().parameters(), lr=1e-3)  # type: ignore[call-arg]

    def step() -> None:
        updates.zero_grad()
        loss().backward()
        updates.step()

    return step


def medians(runs: dict[str, Run], repeats: int, device: str) -> dict[str, float]:
    """Median seconds of each run, taken in turns after a turn to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            if device != "cpu":
                torch.cuda.synchronize()
            if turn > 0:
                taken[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in taken.items()}


def resident(field: str) -> float:
    """Memory of this process in MiB: `VmRSS` now, `VmHWM` at most so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status has no {field}")


def print_peak(run: Run, device: str) -> None:
    """Print the MiB that two runs add at most to what model, batch and libraries take already."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(), run()
        print(json.dumps((torch.cuda.max_memory_allocated() - before) / 2**20))
        return
    before = resident("VmRSS")
    run(), run()
    print(json.dumps(resident("VmHWM") - before))


def peak_of_this_process(device: str) -> float:
    """MiB that this process has taken at most, model, batch and libraries included; on a GPU, its tensors."""
    return resident("VmHWM") if device == "cpu" else torch.cuda.max_memory_allocated() / 2**20


def of_process(script: str, options: argparse.Namespace, measure: str) -> Any:
    """What the script prints last, as JSON, when it is called again with the same options and `--measure`."""
    given = {key: value for key, value in vars(options).items() if key not in ("measure", "output")}
    command = [sys.executable, script, *(f"--{key}={value}" for key, value in given.items()), f"--measure={measure}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def peak_of_process(script: str, options: argparse.Namespace, measure: str) -> float:
    """MiB that it prints."""
    return float(of_process(script, options, measure))


def arguments(description: str, repeats: int, **numbers: int) -> argparse.ArgumentParser:
    """The options that the scripts share, and whole `numbers` of their own with defaults."""
    parser = argparse.ArgumentParser(description=description)
    for key, default in {**numbers, "repeats": repeats, "threads": os.cpu_count(), "seed": 2020}.items():
        parser.add_argument(f"--{key}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # print the peak memory of this process
    return parser


def provenance(script: str, options: argparse.Namespace) -> str:
    """Date, hardware, versions and command, as the last lines of a results file."""
    import recbole

    given = {key: value for key, value in vars(options).items() if key not in ("measure", "output")}
    command = " ".join([f"python benchmarks/{Path(script).name}", *(f"--{key} {given[key]}" for key in given)])
    device = (
        f"{os.cpu_count()} CPU cores ({platform.machine()}), {options.threads} thread{'s' * (options.threads != 1)}"
    )
    if options.device != "cpu":
        device = torch.cuda.get_device_name()
    return (
        f"{date.today()}, {device}. Versions: Python {platform.python_version()}, torch {torch.__version__}, "
        f"RecBole {recbole.__version__}.\nCommand: `{command}`\n"
    )
