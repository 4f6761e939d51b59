"""Orders: an order and the job that confirms it are committed together."""

from bedrockjobs.outbox import Outbox
from shop import database
from shop.jobs import confirm


def place(customer: str, title: str) -> int:
    """Place an order and enqueue its confirmation; raises sqlite3.IntegrityError if no copy is left."""
    with database.transaction() as shop:
        order_id = shop.execute(
            "INSERT INTO orders (customer, title) VALUES (?, ?)", (customer, title)
        ).lastrowid
        assert order_id is not None
        Outbox(shop).enqueue(confirm, order_id, order_key=customer)
        shop.execute("UPDATE books SET copies = copies - 1 WHERE title = ?", (title,))
    return order_id
