"""The sandbox's zygote without its system-call filters: what they stop is measured against it."""

from codea1.sandbox.child.zygote import start
from codea1.sandbox.isolation import seccomp

seccomp.Filter.install = seccomp.Filter.install_with_listener = lambda self: None

__all__ = ["start"]
