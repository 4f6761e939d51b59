"""Policy: which program may run for a job, with which arguments and limits."""
