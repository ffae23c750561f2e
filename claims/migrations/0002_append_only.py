"""What is written once stays: a trigger refuses to change or delete it, whoever asks."""

from django.db import migrations

from orgs.migration_rules import TriggerSQL

WHOLE = ("claims_contractversion", "claims_claimevent", "claims_leaf", "claims_signedcheckpoint")

FUNCTION = """
create function claims_refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$
"""
FROZEN = (
    "create trigger claims_frozen before update or delete on claims_report"
    " for each row when (old.status <> 'draft') execute function claims_refuse_change()"
)


def _append_only(table: str) -> migrations.RunSQL:
    return TriggerSQL(
        f"create trigger claims_append_only before update or delete on {table}"
        " for each row execute function claims_refuse_change()",
        f"drop trigger claims_append_only on {table}",
    )


class Migration(migrations.Migration):
    dependencies = [("claims", "0001_initial")]
    operations = [
        migrations.RunSQL(FUNCTION, "drop function claims_refuse_change()"),
        TriggerSQL(FROZEN, "drop trigger claims_frozen on claims_report"),
        *(_append_only(table) for table in WHOLE),
    ]
