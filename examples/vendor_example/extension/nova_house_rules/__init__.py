"""In-house additions to the Nova backend."""
