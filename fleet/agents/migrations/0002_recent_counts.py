"""Counts of the last hours of receipt in an unlogged table, of hours that are over in agents_agentseen (docs/adr/0010)."""

from django.db import migrations

TABLE = """
create unlogged table agents_agentrecent (
    agent_id text not null,
    node_id bigint not null references fleet_node (id) on delete cascade,
    hour integer not null,
    first_at timestamptz,
    last_at timestamptz,
    received_at timestamptz not null,
    agent_version text not null default '',
    valid bigint not null default 0,
    unsigned bigint not null default 0,
    unknown_key bigint not null default 0,
    bad bigint not null default 0,
    revoked bigint not null default 0,
    primary key (agent_id, node_id, hour)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)
"""
# Batches that were received before this hour (of Unix time) are counted in agents_agentseen, later ones are not.
THROUGH = "create table agents_countedthrough (hour integer not null)"
# What was counted before this migration stands there whole, the hour under way too.
BEGIN = """
insert into agents_countedthrough
select floor(extract(epoch from now()) / 3600)::integer + (exists (select 1 from agents_agentseen))::integer
"""


class Migration(migrations.Migration):
    dependencies = [("agents", "0001_initial"), ("fleet", "0009_storage")]
    operations = [
        migrations.RunSQL(TABLE, "drop table agents_agentrecent"),
        migrations.RunSQL(THROUGH, "drop table agents_countedthrough"),
        migrations.RunSQL(BEGIN, migrations.RunSQL.noop),
    ]
