"""Lets ``python -m bedrock_worker`` do what ``bedrock-worker`` does."""

from __future__ import annotations

from bedrock_worker.cli import main

if __name__ == "__main__":
    main()
