"""Drops privileges before anything of a job or of a file is read.

Commands have the privileges of the worker, so it does not run as root unless told to.
"""

from __future__ import annotations

import os
import pwd

from bedrock_worker.run import kernel


def switch_user(user: str | None, *, as_root: bool, daemons: bool) -> None:
    """Switch to a user if given; raises ValueError if that leaves root without ``as_root``.

    Afterwards other processes of the same user cannot read our environment and memory. Orphans of commands
    become our children, unless they may outlive the run.
    """
    if user is not None:
        _become(user)
    if os.geteuid() == 0 and not as_root:
        raise ValueError("commands would run as root: expected --user NAME to become, or --as-root")
    kernel.protect()
    if not daemons:
        kernel.become_subreaper()


def _become(name: str) -> None:
    """Assume the ids, the groups and the home of a user."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(f"--user: expected the name of a user, got {name!r}") from None
    if os.geteuid() == user.pw_uid:
        return
    try:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    except PermissionError:
        raise ValueError(f"--user: only root can become {name}") from None
    os.environ["HOME"] = user.pw_dir
