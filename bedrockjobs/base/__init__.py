"""Foundations of all other packages: errors, settings, the clock and the wire format."""
