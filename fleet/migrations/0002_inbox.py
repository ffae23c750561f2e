"""The inbox: partitioned by sample_day, bodies stored as they came (they are compressed already)."""

from django.db import migrations

TABLE = """
create table fleet_inbox (
    sample_day date not null,
    sha256 bytea not null check (length(sha256) = 32),
    body bytea not null,
    cluster text not null,
    node text not null,
    hw_id text,
    agent_id text,
    seq bigint,
    boot_id text,
    received_at timestamptz not null,
    key_id bigint,
    signature bytea,
    dropped_total bigint,
    has_suspect_clock boolean not null default false,
    is_seq_conflict boolean not null default false,
    folded_at timestamptz,
    attempts smallint not null default 0,
    error text,
    node_ref bigint,
    first_hour integer,
    last_hour integer,
    primary key (sample_day, sha256)
) partition by range (sample_day)
"""


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial")]
    operations = [
        migrations.RunSQL(TABLE, "drop table fleet_inbox"),
        migrations.RunSQL("alter table fleet_inbox alter column body set storage external", migrations.RunSQL.noop),
        migrations.RunSQL(
            "create index fleet_inbox_waiting on fleet_inbox (received_at) where folded_at is null", migrations.RunSQL.noop
        ),
        migrations.RunSQL(
            "create index fleet_inbox_seq on fleet_inbox (agent_id, seq) where agent_id is not null",
            migrations.RunSQL.noop,
        ),
        migrations.RunSQL(
            "create index fleet_inbox_node_hours on fleet_inbox (node_ref, last_hour)", migrations.RunSQL.noop
        ),
    ]
