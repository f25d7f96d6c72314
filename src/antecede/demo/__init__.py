"""The demo: five systems simulated and audited, a stream ordered, a planted fault found, processes killed."""
