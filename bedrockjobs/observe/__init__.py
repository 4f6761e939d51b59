"""What the server tells of itself: its log, counts and measurements, and who exports them."""
