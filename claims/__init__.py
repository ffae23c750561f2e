"""Contracts, reports and claims: what the slots of a month are worth under a provider's own terms."""
