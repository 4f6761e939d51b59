"""TLS for the server and its clients: certificates (``contexts``) and encrypting transport (``stream``)."""
