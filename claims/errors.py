"""The error tree of claims.

    ClaimsError
    ├── ContractError            contract_invalid        the terms can't be used; names the field
    │   ├── UnknownKey           contract_unknown_key
    │   ├── MissingKey           contract_missing_key
    │   ├── BadTiers             contract_bad_tiers      not monotone, overlapping, or without a base
    │   └── NotExpressible       contract_not_expressible
    ├── PeriodError              period_invalid
    │   ├── UnknownZone          period_unknown_zone
    │   └── PeriodNotOver        period_not_over
    ├── InputsError              inputs_invalid
    │   ├── NoEntitlement        no_entitlement          nothing was owed in this period
    │   └── BadRow               bad_row
    ├── CatalogError             catalog_invalid
    └── ProofError               proof_invalid           a Merkle proof does not hold

Every class has a machine-readable `code` and an HTTP `status`; the message is one sentence for a person.
"""

from __future__ import annotations


class ClaimsError(Exception):
    """Anything that claims refuses. `field` names what is wrong, '' where it is no single field."""

    code = "claims_error"
    status = 400

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class ContractError(ClaimsError):
    """Terms that can't be used."""

    code = "contract_invalid"


class UnknownKey(ContractError):
    """A key that no contract has."""

    code = "contract_unknown_key"


class MissingKey(ContractError):
    """A key without which there is no contract at all."""

    code = "contract_missing_key"


class BadTiers(ContractError):
    """Tiers that are not strictly falling with rising credit, or without a base."""

    code = "contract_bad_tiers"


class NotExpressible(ContractError):
    """A catalogue entry that says of itself that this arithmetic can't express it."""

    code = "contract_not_expressible"


class PeriodError(ClaimsError):
    """A period that can't be built."""

    code = "period_invalid"


class UnknownZone(PeriodError):
    """A zone that the IANA database does not have."""

    code = "period_unknown_zone"


class PeriodNotOver(PeriodError):
    """A period that has not ended yet."""

    code = "period_not_over"
    status = 409


class InputsError(ClaimsError):
    """Facts or rows that can't be used."""

    code = "inputs_invalid"


class NoEntitlement(InputsError):
    """Nothing was owed in this period."""

    code = "no_entitlement"
    status = 409


class BadRow(InputsError):
    """An overlay row that contradicts itself."""

    code = "bad_row"


class CatalogError(ClaimsError):
    """A catalogue file that must not be shown."""

    code = "catalog_invalid"


class ProofError(ClaimsError):
    """A Merkle proof that does not hold."""

    code = "proof_invalid"
