"""People, organisations (tenants), memberships, customer keys and the audit trail. Knows nothing of GPUs."""
