"""Pure contract arithmetic: integers, exact fractions and Decimal. No Django, no I/O, no clock."""
