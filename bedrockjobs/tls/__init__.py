"""TLS, for the server and for the clients: contexts from files, and a transport over another one.

It knows neither protocol. ``contexts`` reads certificates, ``stream`` encrypts what goes over a connection.
"""
