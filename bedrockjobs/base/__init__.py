"""What everything else stands on: errors, settings, the clock and the spelling on the wire."""
