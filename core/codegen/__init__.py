"""Lowering families: each is a package or module here, and a vendor picks the one that fits its chip."""
