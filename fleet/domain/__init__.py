"""Pure rules of the fleet: facts in, verdicts out. No Django, no clock, no I/O but the rules loader's TOML."""
