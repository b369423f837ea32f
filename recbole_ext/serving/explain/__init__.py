"""Explanations of a score: attention, effect of each event, and the page that shows them."""
