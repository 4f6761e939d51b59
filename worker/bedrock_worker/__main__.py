"""Entry point of ``python -m bedrock_worker``."""

from __future__ import annotations

from bedrock_worker.cli import main

if __name__ == "__main__":
    main()
