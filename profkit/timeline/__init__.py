"""Who ran what when, and why nothing ran: launches, steps, phases, waits, idle causes, segments."""
