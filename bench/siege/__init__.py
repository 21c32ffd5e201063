"""Graders of other projects besieged: an adapter of some ten lines to each, and the table of results/siege_peers.md."""
