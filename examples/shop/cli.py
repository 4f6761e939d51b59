"""The shop's command line: ``python cli.py order Ann Emma``."""

import sqlite3
import sys

from shop import database, jobs, orders


def main() -> None:
    """Place an order, or wait for a report."""
    database.prepare()
    match sys.argv[1:]:
        case ["order", customer, title]:
            try:
                print(f"order {orders.place(customer, title)} is placed")
            except sqlite3.IntegrityError:
                sys.exit(f"no copy of {title} is left")
        case ["report"]:
            path = jobs.sales().start().wait(timeout=60)
            print(f"{path}: {jobs.REPORT.read_text()}", end="")
        case _:
            sys.exit("usage: python cli.py order CUSTOMER TITLE | report")


if __name__ == "__main__":
    main()
