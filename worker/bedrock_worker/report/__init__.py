"""Reporting: the output, the progress and the end of a run."""
