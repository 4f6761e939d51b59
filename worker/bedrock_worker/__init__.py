"""The worker: takes jobs from a server and runs commands or Python functions for them."""

from bedrock_worker.functions import Fail, Job, Retry, cron, job

__all__ = ["Fail", "Job", "Retry", "cron", "job"]
