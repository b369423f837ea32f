"""Everything that imports Ray. Other modules import this package only when a search runs."""
