"""A bookshop whose background work is done by bedrockjobs."""
