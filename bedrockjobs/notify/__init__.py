"""Who is told of what happens: messages about events, by mail or posted to an address."""
