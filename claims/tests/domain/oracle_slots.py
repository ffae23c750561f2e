"""The second implementation, first part: what a subject, and then a unit, is in one slot; nothing of the product."""

from __future__ import annotations

from functools import cache

READINGS = ("lower", "nominal", "upper")

#: Whose these faults are depends on who runs the driver (46, 119 and 120 hang with its firmware).
DRIVERS = ("XID_46", "XID_119", "XID_120")


@cache
def chain(name):
    """n1/gpu0 → [n1/gpu0, n1]."""
    out = [name]
    while "/" in name:
        name = name[: name.rindex("/")]
        out.append(name)
    return out


class Case:
    def __init__(self, case):
        self.case, self.terms = case, case["contract"]
        self.lo, self.hi = case["lo"], case["hi"]
        self.first, self.end = case["first"], case["end"]
        self.flat = {}
        for name, runs in case["subjects"].items():
            line = [None] * (self.hi - self.lo)
            for a, b, facts in runs:
                for slot in range(max(a, self.lo), min(b, self.hi)):
                    line[slot - self.lo] = facts
            self.flat[name] = line
        self.reach = "unreachable" in self.terms["counts"]
        self.only_reach = self.terms["counts"] == ["unreachable"]
        self.memo = {}
        self.named = {}
        self.theirs = None

    def rows(self, kind, name, slot, exact=False):
        key = (kind, name, exact)
        if key not in self.named:
            names = [name] if exact else chain(name)
            self.named[key] = [r for r in self.case["rows"] if r["kind"] == kind and r["resource"] in names]
        return [r for r in self.named[key] if r["a"] <= slot and (r["b"] is None or slot < r["b"])]

    # ---- one subject, one slot -------------------------------------------------------------------------------
    def counted(self, name, slot, reading):
        """The weights of the counted reasons of a slot, and whether it is unknown."""
        facts = self.flat[name][slot - self.lo] if name in self.flat else None
        if facts is None:
            return [], True
        weights = []
        for code, weight, category, party, standing in facts["reasons"]:
            if category not in self.terms["counts"] or party in ("customer", "none"):
                continue
            if self.terms["kind"] != "weighted" and weight not in self.terms["weights"]:
                continue
            if self.terms["kind"] != "weighted" and code.startswith("IB_PORT") and weight > 0:
                continue
            if reading == "upper":
                weights.append(weight)
                continue
            if code in DRIVERS:
                party = "infrastructure" if self.terms["owns_driver"] is True else "ambiguous"
            if code == "NODE_LOST" and party == "ambiguous" and self.is_theirs(name, slot):
                party = "infrastructure"
            if party == "ambiguous" and not self.terms["ambiguous_counts"]:
                continue
            notes = self.rows("record", name, slot)
            inside = [row for row in notes if row["own"]]
            counts = standing == "certain"
            if reading == "nominal":
                counts = counts or standing in ("edge_bad", "held")
            if standing == "held":
                counts = counts or bool(notes) or bool(self.rows("ticket", name, slot))
            if code in ("NODE_UNREACHABLE", "NODE_LOST"):
                counts = counts or bool(inside)
            if counts:
                weights.append(weight)
        heard = self.only_reach and facts["cause"] in ("NVML_BLIND", "TWO_INSTALLATIONS")
        return weights, facts["blind"] and not heard

    def is_theirs(self, name, slot):
        """Whether the death of the node at this slot came with a hardware event, or with two more nodes' deaths."""
        if self.theirs is None:
            self.theirs = self._theirs()
        return slot in self.theirs[chain(name)[-1]]

    def _theirs(self):
        dead, begins = {}, {}
        for name, runs in self.case["subjects"].items():
            node = chain(name)[-1]
            gone, broken = dead.setdefault(node, set()), set()
            for a, b, facts in runs:
                for code, _, category, party, standing in facts["reasons"]:
                    if code == "NODE_LOST":
                        gone.update(range(a, b))
                    elif (category, party) == ("hardware_failure", "infrastructure"):
                        broken.update(range(a, b) if standing not in ("possible", "contested") else ())
            begins.setdefault(node, set()).update(slot for slot in broken if slot - 1 not in broken)
        starts = sorted((slot, node) for node, gone in dead.items() for slot in gone if slot - 1 not in gone)
        out = {node: set() for node in dead}
        for at, (slot, node) in enumerate(starts):
            theirs = any(slot - 40 <= begin <= slot for begin in begins[node])
            if theirs or at in self._together(starts):
                while slot in dead[node]:
                    out[node].add(slot)
                    slot += 1
        return out

    def _together(self, starts):
        """Three nodes that begin within eight slots; then whoever follows within eight of the last, up to forty."""
        found, at = set(), 0
        while at < len(starts):
            first = starts[at][0]
            if len({node for slot, node in starts[at:] if slot <= first + 8}) < 3:
                at += 1
                continue
            last = first
            while at < len(starts) and starts[at][0] <= min(last + 8, first + 40):
                last = starts[at][0]
                found.add(at)
                at += 1
        return found

    def state(self, name, slot, reading):
        """'down', 'unknown' or 'up'; 'unknown' only in the nominal reading."""
        key = (name, slot, reading)
        if key not in self.memo:
            weights, blind = self.counted(name, slot, reading)
            if not blind and self.terms["counts"] == ["unreachable"] and "/" not in name:
                seen = self.case["witnessed"]
                blind = seen is not None and not any(a <= slot < b for a, b in seen.get(name, []))
            if weights:
                answer = "down"
            elif blind:
                answer = {"lower": "up", "nominal": "unknown", "upper": "down"}[reading]
            else:
                answer = "up"
            self.memo[key] = answer
        return self.memo[key]

    def without_blindness(self, name, slot, reading):
        return "down" if self.counted(name, slot, reading)[0] else "up"

    # ---- overlays --------------------------------------------------------------------------------------------
    def present(self, name, unit, slot):
        key = (name, unit)
        if key not in self.named:
            names = list(dict.fromkeys([*chain(name), unit]))
            owned = {r["resource"] for r in self.case["rows"] if r["kind"] == "entitlement"}
            self.named[key] = [n for n in names if n in owned]
        rows = self.named[key]
        if not rows or self.rows("stopped", name, slot):
            return False
        return all(self.rows("entitlement", n, slot, exact=True) for n in rows)

    def entitled(self, unit, within, slot):
        own = any(r["kind"] == "entitlement" and r["resource"] in chain(unit["name"]) for r in self.case["rows"])
        if own or not unit["members"]:
            return self.present(unit["name"], within, slot)
        if self.rows("stopped", unit["name"], slot):
            return False
        return any(self.present(member, unit["name"], slot) for member in unit["members"])

    def excluded(self, name, slot):
        for kind in self.terms["excludes"]:
            for row in self.rows(kind, name, slot):
                hours = self.terms["maintenance_notice_h"]
                short = row["notice_s"] is None or row["notice_s"] < (hours or 0) * 3600
                if kind == "maintenance" and hours and short:
                    continue
                return True
        return False

    # ---- a unit, one slot ------------------------------------------------------------------------------------
    def own_state(self, unit, slot, reading):
        answers = []
        for name in chain(unit["name"]):
            looked_at = name in self.flat or (name == unit["name"] and not unit["members"])
            if self.reach and self.terms["scope"] in ("gpu", "node") and "/" not in name:
                looked_at = True
            if looked_at:
                blind = name == unit["name"] or self.reach
                if self.only_reach and "/" in name:
                    blind = False
                answers.append(
                    self.state(name, slot, reading) if blind else self.without_blindness(name, slot, reading)
                )
        return worst(answers)

    def member_state(self, member, unit, slot, reading):
        if not self.present(member, unit["name"], slot):
            return "absent"
        if self.excluded(member, slot):
            return "up"
        node = chain(member)[-1]
        if self.only_reach and node != member and node in self.flat:
            answers = [self.without_blindness(member, slot, reading)]
        else:
            answers = [self.state(member, slot, reading)]
        for above in chain(member)[1:]:
            if above != unit["name"] and above in self.flat:
                answers.append(
                    self.state(above, slot, reading) if self.reach else self.without_blindness(above, slot, reading)
                )
        return worst(answers)

    def unit_state(self, unit, slot, reading):
        own = self.own_state(unit, slot, reading)
        if not unit["members"]:
            return own
        states = [self.member_state(member, unit, slot, reading) for member in unit["members"]]
        required = unit["min_healthy"] - states.count("absent")
        healthy, unknown = states.count("up"), states.count("unknown")
        if healthy >= required:
            members = "up"
        elif healthy + unknown < required:
            members = "down"
        else:
            members = "unknown"
        return worst([own, members])


def worst(answers):
    return "down" if "down" in answers else "unknown" if "unknown" in answers else "up"
