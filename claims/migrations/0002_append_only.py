"""What is written once stays: a trigger refuses to change or delete it, whoever asks."""

from django.db import migrations

WHOLE = ("claims_contractversion", "claims_claimevent", "claims_leaf", "claims_signedcheckpoint")

FORWARD = """
create function claims_refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
create trigger claims_frozen before update or delete on claims_report
    for each row when (old.status <> 'draft') execute function claims_refuse_change();
""" + "".join(
    f"create trigger claims_append_only before update or delete on {table}"
    " for each row execute function claims_refuse_change();\n"
    for table in WHOLE
)
BACKWARD = "drop trigger claims_frozen on claims_report;\n" + "".join(
    f"drop trigger claims_append_only on {table};\n" for table in WHOLE
) + "drop function claims_refuse_change();"


class Migration(migrations.Migration):
    dependencies = [("claims", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
