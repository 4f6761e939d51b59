"""What the operator decided: which program may run for a job, with which arguments and limits."""
