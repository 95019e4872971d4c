"""Tuned results: what is kept of each measured candidate, where, and which of it a compilation uses.

`records` and `keys` say what a result is and belongs to; `store` keeps the user's own in a file (`schema`), `tables`
are those that packages ship, `exchange` is their form as JSON. `lookup` finds the tiles of a compilation among all of
them, by way of the nearest shape (`neighbours`) where the very one was not measured; `listing` shows them.
"""
