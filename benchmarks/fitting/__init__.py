"""Plain training programs beside the recipes that the verb fit makes of their recordings."""
