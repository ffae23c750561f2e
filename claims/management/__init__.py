"""Commands of contracts, reports and claims."""
