"""Programs that attack whoever grades them, by what they try, and honest ones that look like them."""
