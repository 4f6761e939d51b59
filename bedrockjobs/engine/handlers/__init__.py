"""What each command does: ``handler(context, command) -> Answer``. No SQL, no sockets, no await.

A handler that refuses raises a CommandError before its first write; the few that may write first are
named in ``dispatch.WRITES_BEFORE_REFUSING``.
"""
