"""The background work: three kinds of jobs in the queue, and a report every night."""

from pathlib import Path

from bedrock_worker import Fail, Signature, chain, chord, cron, current_run, job

from shop import database

REPORT = Path("report.txt")


@job("order/confirm", retries=5, backoff=["10s", "1m", "10m"])
def confirm(order_id: int) -> str:
    """Confirm an order. A lost run is repeated, so a second run must do no harm."""
    with database.transaction() as shop:
        found = shop.execute("SELECT customer, title FROM orders WHERE id = ?", (order_id,)).fetchone()
        if found is None:
            raise Fail(f"there is no order {order_id}")  # a retry would not find it either
        shop.execute("UPDATE orders SET confirmed = 1 WHERE id = ?", (order_id,))
    customer, title = found
    current_run().logger.info("confirmed %s to %s", title, customer)
    return f"{customer} gets {title}"


@job("sales/revenue")
def revenue(title: str) -> int:
    """Return the revenue of a book's orders, in cents."""
    total = "SELECT ifnull(sum(price), 0) FROM orders JOIN books USING (title) WHERE title = ?"
    with database.transaction() as shop:
        (cents,) = shop.execute(total, (title,)).fetchone()
    return int(cents)


@job("sales/report")
def report(revenues: list[int], currency: str = "EUR") -> str:
    """Return the report of what each book has brought in."""
    return f"{sum(revenues) / 100:.2f} {currency} by {len(revenues)} books"


@job("sales/publish", retries=3, retry_on=OSError)
def publish(text: str) -> str:
    """Publish a report."""
    REPORT.write_text(f"{text}\n")
    return str(REPORT)


def sales() -> Signature[str]:
    """Count each book's revenue in parallel, then report the total, then publish it."""
    with database.transaction() as shop:
        titles = [title for (title,) in shop.execute("SELECT title FROM books ORDER BY title")]
    return chain(chord([revenue.s(title) for title in titles], report.s()), publish.s())


@cron("0 3 * * *", zone="Europe/Berlin")
def nightly() -> None:
    """Start the sales report every night."""
    sales().start()
