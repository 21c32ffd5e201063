"""What runs in the process of untrusted code. The standard library alone is imported here."""
