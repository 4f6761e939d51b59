"""Applications and servers are killed while jobs are created in transactions: as many jobs as commits."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from bedrockjobs.store.postgresql.transfer import TransferDatabase, install_functions
from tests.effort import examples
from tests.reliability.shared import SCHEMA, Shared

pytestmark = pytest.mark.reliability

TRANSACTIONS = examples(100, night=10_000)
"""Transactions of one storm, of which a third rolls back."""

PER_APPLICATION = examples(60, night=1_000)
CONTROL_TRANSACTIONS = 60

DEADLINE_S = 60
"""Time in which the servers have taken everything in, on a machine that does other things too."""

APPLICATION = f"""
import random, sys
import psycopg

url, count, seed, control = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "control"
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


async def differences(folder: Path, transactions: int, seed: int, *, control: bool) -> tuple[int, int]:
    """Run a storm; return the number of commits, and of orders and jobs without the other."""
    dice = random.Random(seed)
    async with Shared(folder, seed=seed) as shared:
        await shared.start(2)
        await asyncio.to_thread(install_functions, TransferDatabase(shared.node.url, SCHEMA))
        await asyncio.to_thread(
            shared.node.do, "CREATE TABLE public.orders (id bigserial PRIMARY KEY, job bigint NOT NULL)"
        )
        done = kills = 0
        while done < transactions or not kills:
            given = (
                shared.node.url,
                str(PER_APPLICATION),
                str(dice.randrange(10**6)),
                "control" if control else "",
            )
            application = await asyncio.create_subprocess_exec(
                sys.executable, "-c", APPLICATION, *given, stdout=asyncio.subprocess.PIPE
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
            place = dice.randrange(2)
            await shared.kill(place)
            kills += 1
            await shared.replace(place)
            ((done,),) = await asyncio.to_thread(
                shared.node.do, "SELECT last_value FROM public.orders_id_seq"
            )
        deadline = monotonic() + DEADLINE_S
        while await asyncio.to_thread(shared.node.do, f"SELECT true FROM {SCHEMA}.inbox LIMIT 1"):
            assert monotonic() < deadline, "the inbox is not emptied"
            await asyncio.sleep(0.02)
        ((commits, wrong),) = await asyncio.to_thread(
            shared.node.do,
            "SELECT count(orders.id), count(*) FILTER (WHERE orders.id IS NULL OR jobs.jobID IS NULL"
            " OR (jobs.data::jsonb ->> 'order')::bigint <> orders.id OR jobs.state <> 'QUEUED')"
            f" FROM public.orders FULL JOIN {SCHEMA}.jobs ON jobs.jobID = orders.job",
        )
        return commits, wrong


async def test_there_are_as_many_jobs_as_commits(tmp_path: Path) -> None:
    commits, wrong = await differences(tmp_path, TRANSACTIONS, 1, control=False)
    assert wrong == 0
    assert commits >= TRANSACTIONS / 2


async def test_jobs_outside_of_the_transaction_are_found(tmp_path: Path) -> None:
    """The control of the test above."""
    _, wrong = await differences(tmp_path, CONTROL_TRANSACTIONS, 2, control=True)
    assert wrong > 0
