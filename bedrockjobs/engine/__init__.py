"""Commands become commits: admission, units of work, waiting GetJobs, what time asks for, and handlers."""
