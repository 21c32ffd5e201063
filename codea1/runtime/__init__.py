"""What every process of a run needs: errors, hosts, signals, phases, and how a command starts and ends."""
