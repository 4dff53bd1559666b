"""TABLE: every API of the controller. LOCAL_TABLE: those of a single controller, which is no member of a quorum."""

from __future__ import annotations

from typing import Final

from barnabas.broker.apis import k17_sasl_handshake, k36_sasl_authenticate
from barnabas.broker.requests.api import make_table
from barnabas.controller.apis import (
    k01_fetch,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k30_create_acls,
    k31_delete_acls,
    k33_alter_configs,
    k37_create_partitions,
    k38_create_delegation_token,
    k39_renew_delegation_token,
    k40_expire_delegation_token,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k49_alter_client_quotas,
    k51_alter_user_scram_credentials,
    k52_vote,
    k53_begin_quorum_epoch,
    k54_end_quorum_epoch,
    k55_describe_quorum,
    k56_alter_partition,
    k57_update_features,
    k58_envelope,
    k59_fetch_snapshot,
    k60_describe_cluster,
    k62_broker_registration,
    k63_broker_heartbeat,
    k64_unregister_broker,
    k67_allocate_producer_ids,
    k70_controller_registration,
    k73_assign_replicas_to_dirs,
    k80_add_raft_voter,
    k81_remove_raft_voter,
    k82_update_raft_voter,
)

_QUORUM: Final = (
    k01_fetch.API,
    k52_vote.API,
    k53_begin_quorum_epoch.API,
    k54_end_quorum_epoch.API,
    k59_fetch_snapshot.API,
    k82_update_raft_voter.API,
)

TABLE: Final = make_table(
    *_QUORUM,
    k17_sasl_handshake.API,
    k18_api_versions.API,
    k19_create_topics.API,
    k20_delete_topics.API,
    k30_create_acls.API,
    k31_delete_acls.API,
    k33_alter_configs.API,
    k36_sasl_authenticate.API,
    k37_create_partitions.API,
    k38_create_delegation_token.API,
    k39_renew_delegation_token.API,
    k40_expire_delegation_token.API,
    k43_elect_leaders.API,
    k44_incremental_alter_configs.API,
    k45_alter_partition_reassignments.API,
    k46_list_partition_reassignments.API,
    k49_alter_client_quotas.API,
    k51_alter_user_scram_credentials.API,
    k55_describe_quorum.API,
    k56_alter_partition.API,
    k57_update_features.API,
    k58_envelope.API,
    k60_describe_cluster.API,
    k62_broker_registration.API,
    k63_broker_heartbeat.API,
    k64_unregister_broker.API,
    k67_allocate_producer_ids.API,
    k70_controller_registration.API,
    k73_assign_replicas_to_dirs.API,
    k80_add_raft_voter.API,
    k81_remove_raft_voter.API,
)

LOCAL_TABLE: Final = {key: api for key, api in TABLE.items() if api not in _QUORUM}
