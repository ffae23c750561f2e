"""Outside anchors: somebody else's word that a checkpoint of the org's log was there at an instant.

An org plans them on one page; once a day the newest checkpoint goes to each of them, and what is away is tried again.
"""
