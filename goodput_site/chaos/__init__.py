"""Breaking the whole product on purpose and counting what is lost: `./goodput chaos`, described in docs/reliability.md.

agents.py      nodes with the real outbox and sender on a clock that runs fast; told to `oracle.py` as they go
oracle.py      what every agent took, kept and got receipts for: files that no fault touches
proxy.py       between agents and server: lost answers, duplicates, delays, captive portals
product.py     an installation of its own, started by the launcher
faults/        what is done to it; each says whether it really struck
nemesis.py     when: one seed gives the schedule
server_side.py what the server holds at the end, read from its database
invariants.py  the judgement: pure functions over the two
"""
