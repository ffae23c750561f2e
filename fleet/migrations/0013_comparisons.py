"""Whole comparisons of rules, worked off in the background."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0012_review_looks'),
    ]

    operations = [
        migrations.CreateModel(
            name='RuleComparison',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('code', models.CharField(blank=True, max_length=64)),
                ('changes', models.JSONField(default=dict)),
                ('version', models.CharField(blank=True, max_length=40)),
                ('from_hour', models.IntegerField()),
                ('until_hour', models.IntegerField()),
                ('requested_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('requested_by', models.CharField(max_length=254)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('running', 'Running'), ('done', 'Done'), ('stopped', 'Stopped'), ('failed', 'Failed')], default='waiting', max_length=8)),
                ('is_active', models.BooleanField(default=True, null=True, unique=True)),
                ('beat_at', models.DateTimeField(help_text='When a worker last told of it; null between slices.', null=True)),
                ('attempts', models.SmallIntegerField(default=0, help_text='Slices begun since the last node was done.')),
                ('last_node_id', models.BigIntegerField(default=0)),
                ('nodes_done', models.IntegerField(default=0)),
                ('nodes_total', models.IntegerField(default=0)),
                ('hours_folded', models.BigIntegerField(default=0)),
                ('spent_s', models.FloatField(default=0)),
                ('rules', models.JSONField(default=list, help_text='The rules that differ, as `comparing.rule_change` writes them.')),
                ('finished_at', models.DateTimeField(null=True)),
                ('why', models.CharField(blank=True, help_text='Why it ended before its end.', max_length=500)),
            ],
            options={
                'ordering': ['-requested_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='RuleComparisonNode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hours', models.IntegerField()),
                ('seconds', models.BigIntegerField()),
                ('lost_before_s', models.BigIntegerField(help_text='GPU-seconds, weighted, in known time.')),
                ('lost_after_s', models.BigIntegerField()),
                ('incidents', models.IntegerField()),
                ('body', models.JSONField()),
                ('comparison', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='nodes', to='fleet.rulecomparison')),
                ('node', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='comparisons', to='fleet.node')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('comparison', 'node'), name='fleet_rulecomparison_node')],
            },
        ),
    ]
