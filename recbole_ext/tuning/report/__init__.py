"""What a search shows: the table of trials and the page with figures."""
