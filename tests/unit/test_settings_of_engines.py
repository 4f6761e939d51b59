"""Settings of one engine are refused with the other, with an explanation."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.settings import OF_A_FILE, Settings
from bedrockjobs.databases import EXIT_CONFIG, StartError
from bedrockjobs.databases.postgresql import PostgreSQLDatabase

URL = "postgresql://h/d"


@pytest.mark.parametrize(
    "given", [{"wal_bytes": 0}, {"ballast_bytes": 0}, {"standby": True}, {"migration_backup": False}], ids=str
)
async def test_those_of_a_file_are_refused_on_postgresql(given: dict[str, Any]) -> None:
    (name,) = given
    database = PostgreSQLDatabase(Settings(database=URL, **given), None, None)
    with pytest.raises(StartError, match=f"^{name}: is for a file; {OF_A_FILE[name]}$") as refused:
        await database.open_database(lambda error: None)
    assert refused.value.status == EXIT_CONFIG


@pytest.mark.parametrize(
    "given", [{"database_read": URL}, {"durability": "replicated"}, {"isolation": "serial"}], ids=str
)
def test_those_of_postgresql_are_refused_for_a_file(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(ValueError, match=f"^{name}: .*PostgreSQL, a file has"):
        Settings(database="jobs.db", **given).database_path()


def test_each_of_a_file_is_tried() -> None:
    assert set(OF_A_FILE) == {"wal_bytes", "ballast_bytes", "standby", "migration_backup"}
    Settings(database=URL).check_postgresql()
