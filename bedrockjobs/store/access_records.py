"""The tables of access, as the open transaction sees them: tokens, logins of the pages, and the audit.

What is known of tokens and logins is remembered until somebody changes them, as pauses are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import after_seconds, stamp
from bedrockjobs.job.rows import AuditRow, LoginRow, TokenRow

AUDIT_CLEANED_MAX = 10_000
"""Rows of the audit that one look for old ones deletes: its transaction must be short."""


class AccessRecords:
    """Tokens, logins and the audit."""

    _execute: Callable[..., Any]
    _sql: Mapping[str, str]
    obeyed = Settings.model_construct()
    """What an operator wants to be kept: looked at each time, as it may change while a server runs."""
    _tokens: tuple[TokenRow, ...] | None = None
    _logins: tuple[LoginRow, ...] | None = None

    def obey(self, settings: Settings) -> None:
        """Keep what an operator wants to be kept."""
        self.obeyed = settings

    def forget_access(self) -> None:
        """Read all anew."""
        self._tokens = self._logins = None

    def access_changed(self) -> None:
        """Read all anew, as it was changed in this unit; an engine with several servers tells the others."""
        self.forget_access()

    def tokens(self) -> tuple[TokenRow, ...]:
        """Return who may do what, by name, whether it still counts or not."""
        if self._tokens is None:
            self._tokens = tuple(TokenRow._make(row) for row in self._execute(self._sql["all_tokens"], ()))
        return self._tokens

    def put_token(self, token: TokenRow) -> None:
        """Write a token, in the place of one of its name."""
        self._execute(self._sql["put_token"], token)
        self.access_changed()

    def delete_token(self, name: str) -> None:
        """Forget a token."""
        self._execute(self._sql["delete_token"], (name,))
        self.access_changed()

    def use_token(self, name: str, now: str, addresses: str) -> None:
        """Note when a token was used and from where; whoever lists tokens reads it, nobody else needs it."""
        self._execute(self._sql["use_token"], (now, addresses, name, now, addresses))
        self._tokens = None

    def logins(self) -> tuple[LoginRow, ...]:
        """Return who is logged in to the pages, the oldest first."""
        if self._logins is None:
            self._logins = tuple(LoginRow._make(row) for row in self._execute(self._sql["all_logins"], ()))
        return self._logins

    def put_login(self, login: LoginRow) -> None:
        """Log somebody in to the pages."""
        self._execute(self._sql["put_login"], login)
        self.access_changed()

    def delete_login(self, digest: str) -> None:
        """Log somebody out of the pages."""
        self._execute(self._sql["delete_login"], (digest,))
        self.access_changed()

    def delete_logins(self, token: str) -> None:
        """Log everybody out of the pages who came with some token."""
        self._execute(self._sql["delete_logins"], (token,))
        self.access_changed()

    def add_audit(self, row: AuditRow) -> None:
        """Note what an operator changed."""
        self._execute(self._sql["add_audit"], row)

    def drop_old_access(self, moment: datetime) -> None:
        """Forget logins that are over, and what operators changed long ago."""
        now = stamp(moment)
        self._execute(self._sql["trim_logins"], (now,))
        self._execute(
            self._sql["trim_audit"], (after_seconds(now, -self.obeyed.keep_audit_s), AUDIT_CLEANED_MAX)
        )
