"""Writes the golden database of the current revision: `python -m tests.storage.golden.make`.

Each revision's file is written once, by the software of its time, and never again: it is what
users have. It holds a finished search (a policy, its evidence, an alias), a second version, a
failed run and one under way, since revision 0002 also imported runs, a fork and an imported policy,
since revision 0003 also options, checkpoints, a confidence and runs that were stopped, since
revision 0004 also a search on a simulated cluster, since revision 0005 also one under stragglers
with the events of its runs, since revision 0006 also runs that began in advance, one of them
cancelled, since revision 0007 also a policy that promises what later runs keep, since revision
0008 also of how many evaluations an accuracy is the mean, beside Optuna's tables.

The policy files beside it are what `write_policy` wrote at each schema version.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[1] / "searcher"))

from generated_trainer import GeneratedTrainer, identity  # noqa: E402

from syncswitch.searcher.loop.search import Search  # noqa: E402
from syncswitch.searcher.strategies.paper import PaperStrategy  # noqa: E402
from syncswitch.searcher.study.plan import SearchPlan  # noqa: E402
from syncswitch.storage.database.engine import open_database  # noqa: E402
from syncswitch.storage.database.inspection import REVISION  # noqa: E402
from syncswitch.storage.importing.manifest import read_manifest  # noqa: E402
from syncswitch.storage.importing.run_import import import_manifest  # noqa: E402
from syncswitch.storage.policies.file import read_policy_file, write_policy  # noqa: E402
from syncswitch.storage.policies.importing import import_policies  # noqa: E402
from syncswitch.storage.policies.registry import PolicyRegistry  # noqa: E402
from syncswitch.storage.records.job import RunConditions  # noqa: E402
from syncswitch.storage.records.trial import RunEvent, TrialRecord, TrialSpec  # noqa: E402
from syncswitch.storage.trials.store import (  # noqa: E402
    CANCELLED,
    Fork,
    Owner,
    SearchInfo,
    TrialStore,
)
from syncswitch.trainers.trainer import Observer  # noqa: E402


def fill(url: str) -> None:
    """Makes the database by the ways that users have."""
    with open_database(url, create=True) as database:
        workload = identity()
        trainer = GeneratedTrainer(failures=1)
        Search(database, workload, SearchPlan(PaperStrategy(3, 2)), lambda: trainer).run()
        Search(database, workload, SearchPlan(PaperStrategy(4, 1)), lambda: trainer).run()
        registry, store = PolicyRegistry(database), TrialStore(database)
        registry.set_alias(workload.fingerprint, "pinned", 1)
        larger = replace(workload, name="larger", workers=8)
        search = SearchInfo("under-way", larger.fingerprint, "paper", 3, 2, 0.01, 0.9, "local", 1)
        store.register(larger, "job.py:larger", search)
        owner = Owner("golden", 4321, 1_700_000_000.25)
        store.begin("under-way", 0, TrialSpec(larger, 100.0, 7), owner)
        store.fail("under-way", 0, "the machine went away")
        store.begin("under-way", 1, TrialSpec(larger, 100.0, 7, fork_from=Path("start.npz")), owner)
        store.beat("under-way", 1, 1234)


MANIFEST = """setup,run_dir,first_protocol,second_protocol,switch_percent,replicate,workers,\
total_worker_steps,stands_for_percent,diverged
golden,whole,bsp,asp,100,0,2,200,100,no
golden,switched,bsp,asp,50,0,2,200,,no
golden,,bsp,asp,0,0,2,200,0,yes
"""


def add_imports(url: str, folder: Path) -> None:
    """What came from elsewhere, and a fork."""
    (folder / "manifest.csv").write_text(MANIFEST)
    for run, last_step in (("whole", 100), ("switched", 150)):
        rows = [
            f"{1_600_000_000 + step},{step},{step / 200}" for step in range(0, last_step + 1, 10)
        ]
        (folder / run).mkdir()
        (folder / run / "acc.csv").write_text("\n".join(["Wall time,Step,Value", *rows]))
    elsewhere = f"sqlite:///{folder}/elsewhere.db"
    with open_database(elsewhere, create=True) as database:
        trainer = GeneratedTrainer(plateau=0.9)
        Search(database, identity(), SearchPlan(PaperStrategy(3, 2)), lambda: trainer).run()
        registry = PolicyRegistry(database)
        (policy,) = registry.policies()
        write_policy(folder / "policy.json", policy, registry.workload(policy.fingerprint))
    with open_database(url, create=False) as database:
        report = import_manifest(database, read_manifest(folder / "manifest.csv"), folder)
        assert report.imported_runs == 3
        import_policies(database, [read_policy_file(folder / "policy.json")], make_current=False)
        store = TrialStore(database)
        (search,) = [found for found in store.searches() if found.study == "under-way"]
        larger = replace(identity(), name="larger", workers=8)
        assert search.fingerprint == larger.fingerprint
        spec = TrialSpec(larger, 50.0, 7, replicate=1, fork_from=Path("half.npz"))
        owner = Owner("golden", 4321, 1_700_000_000.25)
        store.begin("under-way", 2, spec, owner, fork=Fork(1, 50.0))


class AdaptiveTrainer(GeneratedTrainer):
    """Leaves two checkpoints of each run, and stops at 80 % of W those that switch."""

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        folder = Path(f"/golden/{spec.switch_percent:g}-{spec.replicate}")
        left = {percent: folder / f"{percent:g}.npz" for percent in (12.5, 50.0)}
        record = replace(super().train(spec, observer), checkpoints=left, host="golden")
        return record if spec.switch_percent == 100.0 else stopped(record)


def stopped(record: TrialRecord) -> TrialRecord:
    """The run as it was when 80 % of its worker-steps were done."""
    first, second = record.phases
    end = record.worker_steps * 8 // 10
    part = (end - second.start_worker_step) / (record.worker_steps - second.start_worker_step)
    second = replace(second, end_worker_step=end, seconds=part * second.seconds)
    return replace(
        record,
        worker_steps=end,
        evaluations=record.evaluations[:4],
        phases=(first, second),
        stopped_early=True,
        training_seconds=first.seconds + second.seconds,
    )


def add_adaptive(url: str) -> None:
    """What an adaptive search leaves."""
    with open_database(url, create=False) as database:
        workload = identity()
        Search(database, workload, SearchPlan(PaperStrategy(2, 1)), AdaptiveTrainer).run()
        registry, store = PolicyRegistry(database), TrialStore(database)
        (policy,) = registry.lookup(workload.name)
        registry.publish(replace(policy, strategy="adaptive", study="adaptive", confidence=0.97))
        options = {"spread": 0.004, "shares": [0.5, 1], "is_warm": True, "from": None}
        search = SearchInfo(
            "adaptive", workload.fingerprint, "adaptive", 9, 5, 0.01, None, "local", 1, options
        )
        store.register(workload, workload.name, search)


SIMULATED_CLUSTER = "5" * 64


def add_simulated(url: str) -> None:
    """The same job on a simulated cluster: a finished search."""
    with open_database(url, create=False) as database:
        workload = replace(identity(), simulated_cluster=SIMULATED_CLUSTER)
        plan = SearchPlan(PaperStrategy(2, 1), trainer="simulated")
        Search(database, workload, plan, GeneratedTrainer).run()


CONDITIONS = RunConditions(
    "elastic",
    "restart",
    ("straggler:worker=1,at=10%,for=5s,delay=30ms,by=thread", "kill:ps,at=60%"),
)
EVENTS = (
    RunEvent("detected", 400, 6.25, "worker 1: 2.1 worker-steps/s, median 9.8", worker=1),
    RunEvent("removed", 400, 6.25, "elastic: 3 of 4 workers go on", worker=1, seconds=0.125),
    RunEvent("rebuilt", 1800, 40.5, "server killed; from the checkpoint of worker-step 1500"),
)


class DisturbedTrainer(GeneratedTrainer):
    """Says what happened to each run."""

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        return replace(super().train(spec, observer), events=EVENTS)


def add_disturbed(url: str) -> None:
    """A search under conditions of its own: a finished one."""
    with open_database(url, create=False) as database:
        workload = identity(name="disturbed", model="d" * 64)
        plan = SearchPlan(PaperStrategy(2, 1), conditions=CONDITIONS)
        Search(database, workload, plan, DisturbedTrainer).run()


def add_ahead(url: str) -> None:
    """Two runs of the search under way that began in advance; nobody needed one of them."""
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        spec = TrialSpec(replace(identity(), name="larger", workers=8), 50.0, 8, replicate=2)
        owner = Owner("golden", 4321, 1_700_000_000.25)
        for number in (3, 4):
            store.begin("under-way", number, spec, owner, speculative=True)
        store.cancel("under-way", 3, stopped(GeneratedTrainer().train(spec)), CANCELLED)


PROMISE = {
    "confidence": 0.97,
    "criterion": "kept",
    "keep": 0.95,
    "kept_share": 0.93,
    "baseline_kept_share": 0.99,
    "speed_up_low": 1.5,
    "speed_up_high": 2.5,
}


def add_promise(url: str) -> None:
    """A policy that says how many of the later runs keep the accuracy, and why it is BSP alone."""
    with open_database(url, create=False) as database:
        registry = PolicyRegistry(database)
        policy = registry.policies(workload="disturbed")[0]
        values = {**PROMISE, "study": "promise", "reason": "saves no time"}
        registry.publish(replace(policy, **values))  # type: ignore[arg-type]


def main() -> None:
    """Writes `REVISION.sql` beside this file, unless it is there."""
    target = FOLDER / f"{REVISION}.sql"
    if target.exists():
        sys.exit(f"{target} is there; a golden database is never made anew")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.db"
        fill(f"sqlite:///{path}")
        add_imports(f"sqlite:///{path}", Path(folder))
        add_adaptive(f"sqlite:///{path}")
        add_simulated(f"sqlite:///{path}")
        add_disturbed(f"sqlite:///{path}")
        add_ahead(f"sqlite:///{path}")
        add_promise(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as connection:
            target.write_text("\n".join(connection.iterdump()) + "\n")


if __name__ == "__main__":
    main()
