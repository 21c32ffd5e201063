"""A program that joins other hosts, and waits a second for them."""

from codea1.runtime import command, hosts

HOSTS = command.define_hosts()

if __name__ == "__main__":
    hosts.WAIT_SECONDS = 1
    command.run(HOSTS)
