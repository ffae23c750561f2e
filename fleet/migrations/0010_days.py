"""Sums per node and day, derived from the node hours."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0009_storage")]
    operations = [
        migrations.CreateModel(
            name="NodeDay",
            fields=[
                ("pk", models.CompositePrimaryKey("node_id", "day", blank=True, editable=False, primary_key=True, serialize=False)),
                ("day", models.IntegerField()),
                ("first_hour", models.IntegerField()),
                *[(name, models.BigIntegerField()) for name in ("counted", "known", "nominal", "lower", "upper", "down", "degraded", "held")],
                ("node", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="days", to="fleet.node")),
            ],
            options={"indexes": [models.Index(fields=["day"], name="fleet_nodeday_day")]},
        ),
        migrations.CreateModel(
            name="SummedDay",
            fields=[("day", models.IntegerField(primary_key=True, serialize=False))],
        ),
    ]
