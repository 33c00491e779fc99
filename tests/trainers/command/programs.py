"""Training commands: small programs, in as many ways to go wrong as there are tests for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.job import CommandJob, CommandTemplate

TRAINS = """
import json, math, random, sys, time
folder, switch, seed, total, interval, behaviour = sys.argv[1:]
switch, total, interval = int(switch), int(total), int(interval)
noise = random.Random(seed)
began = time.perf_counter()
with open(folder + "/metrics.jsonl", "w") as results:
    for step in [*range(interval, total, interval), total]:
        time.sleep(0.002)
        accuracy = 0.95 - 0.85 * math.exp(-6 * step / total) - 0.01 * noise.random()
        if switch < 0.2 * total and behaviour == "needs-first":
            accuracy -= 0.1
        loss = math.nan if behaviour == "explodes" and step > 3 * interval else 1 - accuracy
        seconds = time.perf_counter() - began
        line = {"step": step, "seconds": seconds, "accuracy": accuracy, "loss": loss, "rest": [1]}
        print(json.dumps(line), file=results, flush=True)
"""

SAYS = """
import sys, time
folder, text, after = sys.argv[1:]
open(folder + "/metrics.jsonl", "w").write(text)
print("hello from the command", flush=True)
exec(after)
"""

FAMILY = """
import os, signal, subprocess, sys, time
child = '''
import os, signal, sys, time
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os._exit(0)
open(sys.argv[1] + "/grandchild", "w").write(str(os.getpid()))
time.sleep(600)
'''
subprocess.Popen([sys.executable, "-c", child, sys.argv[1]])
open(sys.argv[1] + "/child", "w").write(str(os.getpid()))
while not os.path.exists(sys.argv[1] + "/grandchild"):
    time.sleep(0.01)
print("all are there", flush=True)
exec(sys.argv[2])
"""


GOOD = '{"step": 50, "accuracy": 0.5}\n{"step": 100, "accuracy": 0.75}\n'
"""What a good run of 100 steps says."""


def command(folder: Path, program: str, *arguments: str) -> CommandTemplate:
    """A command that runs a program of this module."""
    folder.mkdir(exist_ok=True)
    path = folder / "program.py"
    path.write_text(program)
    return CommandTemplate((sys.executable, "-S", str(path), *arguments))


def says(folder: Path, text: str, after: str = "", **fields: Any) -> CommandJob:
    """A job of 100 steps that writes `text` as its results, and then does `after`."""
    template = command(folder, SAYS, "{output_dir}", braced(text), braced(after))
    return job_of(folder, template, **fields)


def job_of(folder: Path, template: CommandTemplate, **fields: Any) -> CommandJob:
    """A job of 100 steps with its folder in `folder`."""
    fields = {"name": "job", "total_steps": 100, "grace_seconds": 0.2, **fields}
    return CommandJob(template, output_folder=folder / "runs", **fields)


def braced(text: str) -> str:
    """A text that stays as it is in a template."""
    return text.replace("{", "{{").replace("}", "}}")


def trial(job: CommandJob, switch_percent: float = 50.0, **fields: Any) -> TrialSpec:
    return TrialSpec(job.identity, switch_percent, seed=1, **fields)
