"""Attacks on ingest. The ids I01 to I40 are explained one by one in docs/ingest.md."""
