"""What each command does: ``handler(context, command) -> Answer``. No SQL, no sockets, no await.

A handler that refuses a command raises CommandError before its first write, unless the command is declared
``all_or_nothing``. A take that finds no job returns its refusal instead of raising it, since it may have made
jobs FAILED while it searched. Handlers of commands that need no transaction get the Service instead of a
Context.
"""
