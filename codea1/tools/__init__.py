"""Commands that are typed now and then."""
