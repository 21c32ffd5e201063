"""What runs beside untrusted code, in its process. The standard library alone is imported here."""
