"""Ctrl-C at random moments of a search: while Python starts, while Ray starts, while trials run, at the end.

Each search is a `recbole-ext tune` of its own on a small random data set. The whole process group gets SIGINT, as from
a terminal. The search has to exit with status 130 within `--limit` seconds, and no process of it may be left.

    python benchmarks/interrupts.py --times 20
"""

import argparse
import os
import platform
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import psutil
import ray
import torch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "interrupts.md"
MARK = "RECBOLE_EXT_INTERRUPTED"  # an environment variable, by which the processes of one search are found
ARGUMENTS = [
    "tune", "--model=MEANTIME", "--dataset=toy", "--data_path=data", "--hidden_size=16", "--inner_size=32",
    "--n_layers=1", "--MAX_ITEM_LIST_LENGTH=8", "--topk=[5]", "--valid_metric=NDCG@5", "--show_progress=False",
    "--epochs=200", "--stopping_step=1000", "--num_samples=3", "--space=space.yaml",
]  # fmt: skip


def write_data(folder: Path) -> None:
    draw = random.Random(0)
    (folder / "data" / "toy").mkdir(parents=True)
    lines = ["user_id:token\titem_id:token\ttimestamp:float"]
    lines += [f"u{user}\ti{draw.randrange(25)}\t{user * 500 + k * 86400}" for user in range(30) for k in range(8)]
    (folder / "data" / "toy" / "toy.inter").write_text("\n".join(lines) + "\n")
    (folder / "space.yaml").write_text("learning_rate: {loguniform: [1e-3, 1e-2]}\n")


def marked(value: str) -> list[psutil.Process]:
    """The processes that a search has started, directly or not."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def interrupt(folder: Path, delay: float, number: int) -> tuple[int, float, int, str]:
    """Start a search and send a signal after `delay` seconds.

    Returns:
        exit status, seconds from the signal to the end, processes left, and what the search printed.
    """
    value = secrets.token_hex(8)
    environment = {**os.environ, MARK: value, "PYTHONPATH": str(ROOT)}
    with open(folder / "output.txt", "w+") as output:
        search = subprocess.Popen(
            [sys.executable, "-m", "recbole_ext", *ARGUMENTS], cwd=folder, env=environment, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        time.sleep(delay)
        os.killpg(search.pid, number)
        begin = time.monotonic()
        status = search.wait(300)
        seconds = time.monotonic() - begin
        time.sleep(1)  # the kernel ends the processes of Ray together with the search
        left = marked(value)
        for process in left:
            process.kill()
        output.seek(0)
        return status, seconds, len(left), output.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--longest", type=float, default=25, help="seconds after the start, at most")
    parser.add_argument("--limit", type=float, default=10, help="seconds that a search may take to end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signal", choices=["INT", "TERM"], default="INT")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    number = getattr(signal, f"SIG{options.signal}")
    expected = {"INT": 130, "TERM": 143}[options.signal]
    draw, rows, bad = random.Random(options.seed), [], 0
    for turn in range(options.times):
        with tempfile.TemporaryDirectory() as name:
            write_data(Path(name))
            delay = draw.uniform(0.3, options.longest)
            status, seconds, left, output = interrupt(Path(name), delay, number)
        begun = "yes" if "starting the search" in output else "no"
        wrong = status != expected or seconds > options.limit or left or "Traceback" in output
        bad += bool(wrong)
        rows.append(f"| {turn + 1} | {delay:.1f} | {begun} | {status} | {seconds:.1f} | {left} |")
        print(rows[-1], "<- wrong" if wrong else "", flush=True)
        if wrong:
            print(output[-3000:], flush=True)
    lines = [
        f"# SIG{options.signal} at random moments of a search", "",
        f"`python benchmarks/interrupts.py --times {options.times} --signal {options.signal} --seed {options.seed}`, "
        f"{date.today()}, Python {platform.python_version()}, Ray {ray.__version__}, torch {torch.__version__}, "
        f"{os.cpu_count()} cores.", "",
        f"{options.times - bad} of {options.times} searches ended with status {expected} within {options.limit:g} s "
        f"and left no process.", "",
        "| | signal after s | trials had begun | status | seconds to the end | processes left |",
        "|---:|---:|---|---:|---:|---:|", *rows,
    ]  # fmt: skip
    if options.write:
        RESULTS.write_text("\n".join(lines) + "\n")
    print(lines[4])
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
