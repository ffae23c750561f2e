"""What the provider sees across orgs: a row per org, written by the orgs' own jobs, and the console that shows them."""
