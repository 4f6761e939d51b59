"""``python -m bedrockjobs`` is ``bedrockjobs``."""

from bedrockjobs.cli import main

main(prog_name="bedrockjobs")
