"""Clusters, nodes, GPUs and ports: ingest, classification, rollups and the pages that show them."""
