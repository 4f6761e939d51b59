"""The two protocols at one port: raw and HTTP, down to the socket."""
