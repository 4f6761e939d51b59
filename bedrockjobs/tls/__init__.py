"""TLS for the server and its clients: certificates (``contexts``) and an encrypting transport (``stream``).
"""
