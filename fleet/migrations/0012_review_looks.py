"""Who looked at what asks for a look, and how far back the reviews of older hours are still to be derived."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0011_reviews")]
    operations = [
        migrations.CreateModel(
            name="ReviewBackfill",
            fields=[("before_hour", models.IntegerField(primary_key=True, serialize=False))],
        ),
        # a server that ran before reviews were kept has hours without them: the task that seals derives them
        migrations.RunSQL(
            "insert into fleet_reviewbackfill (before_hour) select max(hour) + 1 from fleet_nodehour having max(hour) is not null",
            migrations.RunSQL.noop,
        ),
        migrations.CreateModel(
            name="ReviewLook",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("subject", models.CharField(max_length=300)),
                ("code", models.CharField(max_length=64)),
                ("first_slot", models.IntegerField()),
                ("end_slot", models.IntegerField()),
                ("uuid", models.CharField(blank=True, help_text="Of the GPU, as the review named it then.", max_length=300)),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("by", models.CharField(max_length=254)),
                ("note", models.CharField(blank=True, max_length=1000)),
                ("taken_back_at", models.DateTimeField(null=True)),
                ("taken_back_by", models.CharField(blank=True, max_length=254)),
                ("node", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="review_looks", to="fleet.node")),
            ],
            options={
                "ordering": ["-at", "-id"],
                "indexes": [models.Index(fields=["node", "subject", "code"], name="fleet_reviewlook_about")],
            },
        ),
    ]
