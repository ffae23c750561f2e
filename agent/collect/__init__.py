"""Collectors: each reads one kind of hardware facts and says itself whether it could."""
