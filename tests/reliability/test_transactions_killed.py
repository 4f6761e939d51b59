"""Applications, relays and servers are killed while jobs are created in transactions: as many as commits."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import pytest

from bedrockjobs.outbox import table_sql
from bedrockjobs.store.postgresql.transfer import TransferDatabase, install_functions
from tests.effort import examples
from tests.postgresql.cluster import Node, quiet_port
from tests.reliability.servers import Launcher
from tests.reliability.shared import NODE_SETTINGS, SCHEMA, Shared

pytestmark = pytest.mark.reliability

TRANSACTIONS = examples(100, night=10_000)
"""Transactions of one storm, of which a third rolls back."""

OUTBOX_TRANSACTIONS = examples(200, night=10_000)
"""Transactions of one storm with an outbox, of which about a third rolls back."""

CUSTOMERS = 7
"""Keys in whose order jobs are created from an outbox."""

PER_APPLICATION = examples(60, night=1_000)
CONTROL_TRANSACTIONS = 60
CONTROL_STORMS = 5
"""Storms in which a fault of the relay must be found; most find it in the first one."""

DEADLINE_S = 60
"""Time in which the servers have taken everything in, on a machine that does other things too."""

APPLICATION = f"""
import random, sys
import psycopg

url, control, count, seed = sys.argv[1], sys.argv[2] == "control", int(sys.argv[3]), int(sys.argv[4])
dice = random.Random(seed)
with psycopg.connect(url) as mine, psycopg.connect(url, autocommit=True) as other:
    print("connected", flush=True)
    for _ in range(count):
        (order,) = mine.execute("INSERT INTO public.orders (job) VALUES (0) RETURNING id").fetchone()
        call = "SELECT {SCHEMA}.create_job('order', jsonb_build_object('order', %s::bigint))"
        (job,) = (other if control else mine).execute(call, (order,)).fetchone()
        mine.execute("UPDATE public.orders SET job = %s WHERE id = %s", (job, order))
        if dice.random() < 1 / 3:
            mine.rollback()
        else:
            mine.commit()
"""
"""An application; the control creates its jobs outside of its transactions."""


class Storm(NamedTuple):
    """What came of a storm with an outbox."""

    commits: int
    kills_at_work: int
    """Kills of the server or the relay while the outbox had rows."""
    faults: set[str]


async def kill_applications(
    program: str,
    given: Sequence[str],
    dice: random.Random,
    done: Callable[[], int],
    disturb: Callable[[], Awaitable[None]],
    transactions: int,
) -> None:
    """Run a program and kill it unless it ends by itself, and call ``disturb``, until enough is done."""
    disturbed = False
    while done() < transactions or not disturbed:
        application = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, *given, str(PER_APPLICATION), str(dice.randrange(10**6))),
            stdout=asyncio.subprocess.PIPE,
        )
        assert application.stdout is not None
        assert await application.stdout.readline() == b"connected\n"
        try:
            await asyncio.wait_for(application.wait(), dice.uniform(0.05, 1))
        except TimeoutError:
            with suppress(ProcessLookupError):  # it has just ended
                application.kill()
            await application.wait()
        assert application.returncode in (0, -9)
        await disturb()
        disturbed = True


async def until_empty(rows: Callable[[], list[Any]]) -> None:
    """Wait until all that the applications committed is carried over."""
    deadline = monotonic() + DEADLINE_S
    while await asyncio.to_thread(rows):
        assert monotonic() < deadline, "what was committed is not carried over"
        await asyncio.sleep(0.02)


async def differences(folder: Path, transactions: int, seed: int, *, control: bool) -> tuple[int, int]:
    """Run a storm; return the number of commits, and of orders and jobs without the other."""
    dice = random.Random(seed)
    async with Shared(folder, seed=seed) as shared:
        await shared.start(2)
        do = shared.node.do
        await asyncio.to_thread(install_functions, TransferDatabase(shared.node.url, SCHEMA))
        await asyncio.to_thread(
            do, "CREATE TABLE public.orders (id bigserial PRIMARY KEY, job bigint NOT NULL)"
        )

        async def disturb() -> None:
            place = dice.randrange(2)
            await shared.kill(place)
            await shared.replace(place)

        given = (shared.node.url, "control" if control else "")
        await kill_applications(
            APPLICATION,
            given,
            dice,
            lambda: do("SELECT last_value FROM public.orders_id_seq")[0][0],
            disturb,
            transactions,
        )
        await until_empty(lambda: do(f"SELECT true FROM {SCHEMA}.inbox LIMIT 1"))
        ((commits, wrong),) = await asyncio.to_thread(
            do,
            "SELECT count(orders.id), count(*) FILTER (WHERE orders.id IS NULL OR jobs.jobID IS NULL"
            " OR (jobs.data::jsonb ->> 'order')::bigint <> orders.id OR jobs.state <> 'QUEUED')"
            f" FROM public.orders FULL JOIN {SCHEMA}.jobs ON jobs.jobID = orders.job",
        )
        return commits, wrong


class Shop:
    """An application's database with an outbox, and the queue's database, both on one engine."""

    def __init__(self, folder: Path, node: Node | None) -> None:
        """Use two files in ``folder``, or with ``node`` two schemas of its database."""
        self._node = node
        self.source = str(folder / "shop.db") if node is None else node.url
        self.queue = str(folder / "jobs.db") if node is None else node.url
        self._jobs = "jobs" if node is None else f"{SCHEMA}.jobs"

    def create(self) -> None:
        """Create the tables of the application."""
        number = "INTEGER PRIMARY KEY AUTOINCREMENT" if self._node is None else "bigserial PRIMARY KEY"
        orders = f"CREATE TABLE orders (id {number}, number bigint NOT NULL, customer bigint NOT NULL);"
        statements = orders + table_sql("sqlite" if self._node is None else "postgresql")
        if self._node is not None:
            self._node.do(statements)
            return
        with closing(sqlite3.connect(self.source)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(statements)

    def rows(self, sql: str, source: str = "") -> list[tuple[Any, ...]]:
        """Return rows of the application's database, or of the file ``source``."""
        if self._node is not None:
            return self._node.do(sql)
        with closing(sqlite3.connect(source or self.source)) as connection:
            return connection.execute(sql).fetchall()

    def waiting(self) -> int:
        """Return the number of rows in the outbox, also of those set aside."""
        return int(self.rows("SELECT count(*) FROM bedrockjobs_outbox")[0][0])

    def commits(self) -> int:
        """Return the number of committed transactions."""
        return int(self.rows("SELECT count(*) FROM orders")[0][0])

    def faults(self) -> set[str]:
        """Return what is wrong with the jobs."""
        orders = self.rows("SELECT number, customer FROM orders ORDER BY id")
        jobs = self.rows(f"SELECT data FROM {self._jobs} WHERE state = 'QUEUED' ORDER BY jobID", self.queue)
        created = [json.loads(data)["order"] for (data,) in jobs]
        customer_of = dict(orders)
        found = {
            "lost": customer_of.keys() - set(created),
            "not committed": set(created) - customer_of.keys(),
            "doubled": len(created) > len(set(created)),
        }
        if not any(found.values()):
            wanted, given = defaultdict(list), defaultdict(list)
            for number, customer in orders:
                wanted[customer].append(number)
            for number in created:
                given[customer_of[number]].append(number)
            found["out of order"] = wanted != given
        return {name for name, some in found.items() if some}


OUTBOX_APPLICATION = f"""
import json, random, sys
from contextlib import closing
from bedrockjobs.commands import CreateJob
from bedrockjobs.outbox import Outbox, connect

source, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)
with closing(connect(source)) as mine:
    print("connected", flush=True)
    for _ in range(count):
        number, customer = dice.getrandbits(62), dice.randrange({CUSTOMERS})
        mine.execute(f"INSERT INTO orders (number, customer) VALUES ({{number}}, {{customer}})")
        job = CreateJob(name="order", data=json.dumps({{"order": number}}))
        Outbox(mine).enqueue(job, order_key=str(customer))
        if dice.random() < 1 / 3:
            mine.rollback()
        else:
            mine.commit()
"""
"""An application; the jobs of one customer are to be created in the order of the orders."""


async def relayed(folder: Path, node: Node | None, transactions: int, seed: int, fault: str = "") -> Storm:
    """Run a storm in which the relay, perhaps with a fault, and the server are killed too."""
    shop, port, dice = Shop(folder, node), quiet_port(), random.Random(seed)
    settings = {"database": shop.queue, "port": port} | ({"database_schema": SCHEMA} if node else {})
    relay = ["outbox", "relay", "--from", shop.source, "--server", f"127.0.0.1:{port}"]
    at_work = 0
    async with Launcher(folder / "processes.log") as launcher:
        await asyncio.to_thread(shop.create)

        async def start(what: str) -> int:
            if what == "relay":
                return await launcher.order({}, argv=relay, fault=fault, seed=seed)
            launcher.forget()
            return (await launcher.start(settings))[0]

        living = {what: await start(what) for what in ("server", "relay")}

        async def disturb() -> None:
            nonlocal at_work
            for what in dice.sample([*living], dice.randint(1, 2)):
                await asyncio.sleep(dice.uniform(0, 0.1))
                at_work += shop.waiting() > 0
                await launcher.kill(living[what])
                living[what] = await start(what)

        await kill_applications(
            OUTBOX_APPLICATION, [shop.source], dice, lambda: 3 * shop.commits() // 2, disturb, transactions
        )
        await until_empty(lambda: [True] * shop.waiting())
        return Storm(shop.commits(), at_work, shop.faults())


async def test_there_are_as_many_jobs_as_commits(tmp_path: Path) -> None:
    commits, wrong = await differences(tmp_path, TRANSACTIONS, 1, control=False)
    assert wrong == 0
    assert commits >= TRANSACTIONS / 2


async def test_jobs_outside_of_the_transaction_are_found(tmp_path: Path) -> None:
    """The control of the test above."""
    _, wrong = await differences(tmp_path, CONTROL_TRANSACTIONS, 2, control=True)
    assert wrong > 0


@asynccontextmanager
async def own_node(engine: str) -> AsyncIterator[Node | None]:
    """Yield a PostgreSQL for a storm, or None for files."""
    node = Node(settings=NODE_SETTINGS) if engine == "postgresql" else None
    if node is not None:
        await asyncio.to_thread(node.start)
    try:
        yield node
    finally:
        if node is not None:
            await asyncio.to_thread(node.stop)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_an_outbox_creates_as_many_jobs_as_commits_in_order(tmp_path: Path, engine: str) -> None:
    async with own_node(engine) as node:
        storm = await relayed(tmp_path, node, OUTBOX_TRANSACTIONS, 3)
    assert not storm.faults, storm
    assert storm.commits >= OUTBOX_TRANSACTIONS / 2
    assert storm.kills_at_work, storm


@pytest.mark.parametrize(
    ("fault", "found"),
    [("deletes first", "lost"), ("without keys", "doubled"), ("overtakes", "out of order")],
)
async def test_a_relay_that_loses_doubles_or_overtakes_is_found(
    tmp_path: Path, fault: str, found: str
) -> None:
    """The control of the test above."""
    for seed in range(CONTROL_STORMS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if found in (await relayed(folder, None, CONTROL_TRANSACTIONS, seed, fault)).faults:
            return
    raise AssertionError(f"{fault} is not found in {CONTROL_STORMS} storms")
