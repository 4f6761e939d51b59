"""A launcher whose servers all have the same pid.

``python -m tests.reliability.same_pid`` reads orders and replies like ``launcher``, but starts no server.
"""

from __future__ import annotations

import json
import sys

PID = 4711

if __name__ == "__main__":
    for order in map(json.loads, sys.stdin):
        if "end" in order:
            print("none left", flush=True)
            continue
        print(f"forked {PID}\nThe server listens on 127.0.0.1:8888", flush=True)
        print(f"ended {PID} {order['status']}", flush=True)
