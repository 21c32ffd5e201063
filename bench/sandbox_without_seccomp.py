"""The sandbox's zygote without its system-call filters: what they stop is measured against it."""

from codea1.sandbox import seccomp
from codea1.sandbox.worker import start

seccomp.Filter.install = seccomp.Filter.install_with_listener = lambda self: None

__all__ = ["start"]
