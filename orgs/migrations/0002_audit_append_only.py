"""The audit trail is append-only: the database itself refuses to change or delete an entry."""

from django.db import migrations

FUNCTION = """
create function public.orgs_audit_refuse() returns trigger language plpgsql as $$
begin
  raise exception 'the audit trail is append-only';
end $$
"""


class Migration(migrations.Migration):
    dependencies = [("orgs", "0001_initial")]
    operations = [
        migrations.RunSQL(FUNCTION, "drop function public.orgs_audit_refuse()"),
        migrations.RunSQL(
            "create trigger orgs_audit_append_only before update or delete on public.orgs_auditentry"
            " for each row execute function public.orgs_audit_refuse()",
            "drop trigger orgs_audit_append_only on public.orgs_auditentry",
        ),
    ]
