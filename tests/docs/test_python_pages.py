"""The pages on Python are executed: their modules by a worker, their web applications by requests."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli import warm
from tests.cli.live_server import DEADLINE_S, stop
from tests.docs.sessions import Player

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs/how-to"
FILES = re.compile(r"^<!-- file: (\S+) -->\n```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@contextmanager
def worker(player: Player, folder: Path, module: str) -> Iterator[None]:
    """Run a worker of a module as the pages say."""
    command = [warm.program("bedrock-worker"), "--module", module, "--concurrency", "2"]
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--isolation", "fork"],
            cwd=folder,
            env=player.environment,
            stdout=log,
            stderr=log,
            text=True,
        )
        try:
            yield
        finally:
            assert stop(process) == 0, (folder / "worker.log").read_text()


def run(player: Player, folder: Path, program: str) -> list[object]:
    """Run a program in the folder; return the parsed JSON of each line."""
    (folder / "asks.py").write_text(program)
    done = subprocess.run(
        [warm.program("python"), "asks.py"],
        cwd=folder,
        env=player.environment,
        timeout=DEADLINE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    log = folder / "worker.log"
    assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
    return [json.loads(line) for line in done.stdout.splitlines()]


UNDER_TEST = """
import sys, pytest
plugins = ["-p", "bedrockjobs.pytest_plugin", "-p", "no:cacheprovider"]
sys.exit(pytest.main(["-q", *plugins, *sys.argv[1:], "--rootdir=.", "."]))
"""


def under_test(folder: Path, *options: str) -> str:
    """Run the tests in a folder, which pass; return what pytest prints."""
    (folder / "asks.py").write_text(UNDER_TEST)
    done = subprocess.run(
        [warm.program("python"), "asks.py", *options],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # the plugins of others take long to load
        timeout=2 * DEADLINE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_on_the_client(player: Player) -> None:
    assert player.play(HOW_TO / "python-client.md") == 2


def test_the_page_on_tests(tmp_path: Path) -> None:
    """The page's tests pass, and its error message is the real one."""
    page = (HOW_TO / "test-an-application.md").read_text()
    for name, text in FILES.findall(page):
        (tmp_path / name).write_text(text)
    assert "4 passed" in under_test(tmp_path, "-p", "pytest_asyncio", "-o", "asyncio_mode=auto")
    wrong = (
        "from bedrockjobs.testing import capture\nfrom shop import order, send_mail\n"
        "with capture() as jobs:\n    order('Emma', 'ann@example.com')\n"
        "jobs.assert_enqueued(send_mail, to='bob@example.com')\n"
    )
    (tmp_path / "wrong.py").write_text(wrong)
    command = [warm.program("python"), "wrong.py"]
    failed = subprocess.run(
        command, cwd=tmp_path, timeout=2 * DEADLINE_S, capture_output=True, text=True, check=False
    )
    assert failed.stderr[failed.stderr.rindex("AssertionError:") :] in page


SHOP = ROOT / "examples/shop"


def test_the_example_shop(player: Player, tmp_path: Path) -> None:
    """Its tests and those of the page on Celery pass; a worker runs what its own page shows."""
    folder = tmp_path / "folder"
    shutil.copytree(SHOP, folder, dirs_exist_ok=True)
    for name, text in FILES.findall((HOW_TO / "from-celery.md").read_text()):
        with (folder / name).open("a") as file:
            file.write(f"{text}\n\n")
    assert "6 passed" in under_test(folder)
    with worker(player, folder, "shop.jobs"):
        assert player.play(folder / "README.md") == 5


def test_the_page_on_functions(player: Player, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert player.write_files(HOW_TO / "python-functions.md") == ["app/jobs.py", "albums.py"]
    with worker(player, folder, "app.jobs"):
        assert player.play(HOW_TO / "python-functions.md") == 4


def test_the_page_on_workflows(player: Player, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert player.write_files(HOW_TO / "workflows.md") == ["shop/flows.py"]
    with worker(player, folder, "shop.flows"):
        assert player.play(HOW_TO / "workflows.md") == 1


DJANGO = """
import json, os
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
from orders import jobs, models
from django.db import connection
from django.test import Client

with connection.schema_editor() as editor:
    editor.create_model(models.Order)
client = Client(HTTP_HOST="localhost")
created = client.post("/orders", {"customer": "Ann"})
print(json.dumps([created.status_code, created.json()]))
order = models.Order.objects.get()
print(json.dumps(jobs.confirm.handle(order.job_id).wait(timeout=60)))
shown = client.get("/orders/1")
order.refresh_from_db()
print(json.dumps([shown.status_code, shown.json(), order.state]))
order.state = "new"
print(json.dumps(jobs.confirm(order.pk)))
"""


def test_the_page_on_django(player: Player, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert len(player.write_files(HOW_TO / "django.md")) == 5
    with worker(player, folder, "orders.jobs"):
        assert run(player, folder, DJANGO) == [
            [202, {"order": 1}],
            "order 1 of Ann is confirmed",
            [200, {"result": "order 1 of Ann is confirmed"}, "confirmed"],
            "order 1 of Ann is confirmed",
        ]


TRANSACTION = """
import json, sqlite3
import shop
from bedrockjobs.outbox import OutboxTable, connect

shop.prepare()
shop.order("Ann")
try:
    shop.order("Bob", fails=True)
except RuntimeError as error:
    print(json.dumps(str(error)))
with connect("shop.db") as database:
    print(json.dumps(shop.relay().carry(OutboxTable(database))))
print(json.dumps(shop.confirm.handle(1).wait(timeout=60)))
"""


def test_the_page_on_transactions(player: Player, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert player.write_files(HOW_TO / "enqueue-in-a-transaction.md") == ["shop.py"]
    with worker(player, folder, "shop"):
        assert run(player, folder, TRANSACTION) == [
            "the card was declined",
            [1, 0, 0],
            "order 1 is confirmed",
        ]


FASTAPI = """
import asyncio, json
from app.main import app

async def ask(method, path, query=""):
    said = []
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    async def send(message):
        said.append(message)
    await app({
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "headers": [], "scheme": "http",
        "server": ("localhost", 80), "client": ("localhost", 1), "root_path": "",
    }, receive, send)
    found = [said[0]["status"], json.loads(b"".join(it.get("body", b"") for it in said[1:]))]
    print(json.dumps(found))
    return found[1]

async def main():
    async with app.router.lifespan_context(app):
        for source in ("cat.jpg", "cat.txt"):
            job_id = (await ask("POST", "/thumbnails", f"source={source}&width=64"))["job_id"]
            await ask("GET", f"/thumbnails/{job_id}", "wait=20")
        await ask("GET", "/thumbnails/4711")
        later = app.state.thumbnail.using(first_run="2099-01-01")
        await ask("GET", f"/thumbnails/{(await later.aenqueue('cat.jpg')).job_id}")

asyncio.run(main())
"""


def test_the_page_on_fastapi(player: Player, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert player.write_files(HOW_TO / "fastapi.md") == ["app/jobs.py", "app/main.py"]
    with worker(player, folder, "app.jobs"):
        assert run(player, folder, FASTAPI) == [
            [202, {"job_id": 1}],
            [200, {"source": "cat.jpg", "width": 64}],
            [202, {"job_id": 2}],
            [422, {"detail": "Fail: cat.txt is no picture"}],
            [404, {"detail": "no such thumbnail"}],
            [409, {"detail": "not ready yet"}],
        ]
