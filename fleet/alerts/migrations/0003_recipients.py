"""Addresses of e-mail channels are confirmed. Those that were told of alerts before have done so."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


def keep(apps, schema_editor):
    """Whoever was told so far goes on being told."""
    Recipient = apps.get_model("alerts", "Recipient")
    for channel in apps.get_model("alerts", "Channel").objects.filter(kind="email"):
        for address in dict.fromkeys(channel.recipients):
            Recipient.objects.create(
                channel=channel, address=address, asked_at=channel.created_at, confirmed_at=channel.created_at
            )


class Migration(migrations.Migration):
    dependencies = [("alerts", "0002_subject")]

    operations = [
        migrations.CreateModel(
            name="Recipient",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("address", models.EmailField(max_length=254)),
                ("asked_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("confirmed_at", models.DateTimeField(null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="addresses", to="alerts.channel"
                    ),
                ),
            ],
            options={
                "ordering": ["address"],
                "constraints": [
                    models.UniqueConstraint(fields=("channel", "address"), name="alerts_recipient_once")
                ],
            },
        ),
        migrations.RunPython(keep, migrations.RunPython.noop),
    ]
