"""What each command does: ``handler(context, command) -> Answer``. No SQL, no sockets, no await.

A handler that refuses raises a CommandError before its first write, unless its command says that it is
``all_or_nothing``. A take that has nothing to hand out returns its refusal, since it may have failed jobs on
its way. Handlers of commands that no writer does are given the Service instead of a Context.
"""
