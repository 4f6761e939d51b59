"""Every setting and every constant of config.py has a description and a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from bedrockjobs.base import config
from bedrockjobs.base.settings import RELOADABLE, Settings

TESTS = Path(__file__).parents[1]
TREE = ast.parse(Path(config.__file__).read_text())
CONSTANTS = {
    node.targets[0].id: behind
    for node, behind in zip(TREE.body, [*TREE.body[1:], None], strict=True)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
}
"""The docstring after each constant, which states its purpose."""

UNITS = re.compile(r".*_(max|s|bytes|ms)$")
NOT_QUANTITIES = {
    "keep_finished",
    "host",
    "port",
    "unix_role",
    "behind_proxy",
    "tls_cert",
    "trusted_proxies",
    "proxy_user_header",
    "proxy_role",
    "tls_key",
    "heartbeat_url",
    "notify_commands",
    "tls_client_ca",
    "database",
    "database_direct",
    "database_read",
    "durability",
    "isolation",
    "compatibility",
    "standby",
    "insecure",
    "accept_loss",
    "migration_backup",
    "test_clock",
    "log_format",
    "unix",
    "public_hosts",
    "public_url",
    "smtp",
    "mail_from",
    "root_path",
    "database_schema",
    "server_name",
}


def _is_a_sentence(node: ast.stmt | None) -> bool:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text.rstrip().endswith(".")
    return False


def test_there_are_constants_and_settings() -> None:
    assert len(CONSTANTS) > 15
    assert len([name for name in CONSTANTS if name.endswith("_MAX")]) > 12
    assert len(Settings.model_fields) > 20


def test_each_constant_says_what_it_is_for() -> None:
    silent = [name for name, behind in CONSTANTS.items() if not _is_a_sentence(behind)]
    assert not silent, "put a docstring with its unit and reason below it, which ends with a full stop"


def test_each_setting_says_what_it_is_for_and_its_name_ends_in_its_unit() -> None:
    fields = Settings.model_fields
    silent = [name for name, field in fields.items() if not (field.description or "").endswith(".")]
    assert not silent, "give it a description that ends with a full stop"
    unitless = [name for name in fields if name not in NOT_QUANTITIES and not UNITS.fullmatch(name)]
    assert not unitless, "end the name with its unit (see UNITS), or add it to NOT_QUANTITIES"


def test_each_has_a_test() -> None:
    """A name that no test mentions is an untested limit."""
    words: set[str] = set()
    for path in TESTS.rglob("*.py"):
        if path != Path(__file__):
            words.update(re.findall(r"\w+", path.read_text()))
    untested = [name for name in (*CONSTANTS, *Settings.model_fields) if name not in words]
    assert not untested, "use each name in a test, which tries the limit"


RENEWED = {"messenger"}
"""Parts that get the new value from ``Service.renew_messages`` when settings are reloaded."""


def _copies(tree: ast.Module) -> set[str]:
    """Return the attributes that keep the value of a setting which may be reloaded."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            parts = [part for one in node.targets for part in ast.walk(one)]
            kept = {part.attr for part in parts if isinstance(part, ast.Attribute)}
            values = [part for part in ast.walk(node.value) if isinstance(part, ast.Attribute)]
            if any(part.attr in RELOADABLE and "settings" in ast.unparse(part.value) for part in values):
                found |= kept
    return found


def test_nothing_keeps_a_setting_that_is_reloaded() -> None:
    product = Path(config.__file__).parents[1]
    texts = [
        text
        for path in product.rglob("*.py")
        if "settings" in (text := path.read_text()) and any(f".{name}" in text for name in RELOADABLE)
    ]
    found = set[str]().union(*(_copies(ast.parse(text)) for text in texts))
    assert found == RENEWED
    assert _copies(ast.parse("self.x, self.y = Window(settings.batch_max), 1")) == {"x", "y"}
