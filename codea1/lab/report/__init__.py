"""The report of a run, for people: its tables, warnings, curves and page; the look of all tables and figures."""
