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
    ├── ReportError              report_refused          409: nothing is issued, and nothing was half-issued
    │                            period_in_grace, facts_waiting, contract_incomplete, insufficient_data,
    │                            not_measurable, already_issued, reason_needed, nothing_changed
    ├── ClaimStateError          claim_state             409: the claim is not where this step begins
    ├── AnchorError              anchor_refused          422: an outside anchor can't be planned, or was not made
    ├── PackError                pack_refused            a pack can't be made
    ├── NotThere                 not_found               404
    ├── PdfUnavailable           pdf_unavailable         503: says what to install
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


class ReportError(ClaimsError):
    """A report that is not issued. `code` says why."""

    code = "report_refused"
    status = 409

    def __init__(self, message: str, code: str = "report_refused", field: str = "") -> None:
        super().__init__(message, field)
        self.code = code


class ClaimStateError(ClaimsError):
    """A step that does not begin where the claim is, or lacks what it needs."""

    code = "claim_state"
    status = 409


class AnchorError(ClaimsError):
    """An outside anchor that can't be planned, or that was not made."""

    code = "anchor_refused"
    status = 422


class PackError(ClaimsError):
    """A pack that can't be made or read."""

    code = "pack_refused"
    status = 409


class NotThere(ClaimsError):
    """There is no such contract, report or claim in this org."""

    code = "not_found"
    status = 404


class PdfUnavailable(ClaimsError):
    """This machine can't make a PDF; the message says what to install."""

    code = "pdf_unavailable"
    status = 503
