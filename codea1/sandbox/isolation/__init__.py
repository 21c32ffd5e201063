"""What keeps untrusted code from the rest of the machine."""
