"""TABLE: every API of the controller."""

from __future__ import annotations

from barnabas.broker.requests.api import make_table
from barnabas.controller.apis import (
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k33_alter_configs,
    k37_create_partitions,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k56_alter_partition,
    k57_update_features,
    k58_envelope,
    k60_describe_cluster,
    k62_broker_registration,
    k63_broker_heartbeat,
    k64_unregister_broker,
    k67_allocate_producer_ids,
    k73_assign_replicas_to_dirs,
)

TABLE = make_table(
    k18_api_versions.API,
    k19_create_topics.API,
    k20_delete_topics.API,
    k33_alter_configs.API,
    k37_create_partitions.API,
    k43_elect_leaders.API,
    k44_incremental_alter_configs.API,
    k45_alter_partition_reassignments.API,
    k46_list_partition_reassignments.API,
    k56_alter_partition.API,
    k57_update_features.API,
    k58_envelope.API,
    k60_describe_cluster.API,
    k62_broker_registration.API,
    k63_broker_heartbeat.API,
    k64_unregister_broker.API,
    k67_allocate_producer_ids.API,
    k73_assign_replicas_to_dirs.API,
)
