"""A deleted key stays deleted on a replica that was away while the others cleaned its tombstone.

An end-to-end proof of rule 6 of `broker/storage/cleaner/log_cleaner.py`.
"""

from __future__ import annotations

from tests.barnabas.testing.simulation.conftest import Project, outcomes

LIFE = """
    import kafka
    import pytest

    COMPACTED = {
        "cleanup.policy": "compact",
        "delete.retention.ms": 1000,
        "min.cleanable.dirty.ratio": 0.01,
        "min.insync.replicas": 2,
        "segment.ms": 1000,
    }


    @pytest.mark.simulation(config={"log.cleaner.backoff.ms": 1000})
    def test_a_deleted_key_does_not_come_back(simulated_cluster):
        cluster = simulated_cluster
        cluster.create_topic("t", config=COMPACTED)
        producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")

        def send(key, value):
            producer.send("t", value, key=key)
            producer.flush()
            cluster.sleep(3)  # a segment each, and rounds of the cleaner between

        send(b"a", b"1")
        leader_id = cluster.leader("t").id
        away, *_ = (broker for broker in cluster.brokers if broker.id != leader_id)
        away.kill()
        send(b"a", None)
        for number in range(5):
            send(b"b%d" % number, b"1")
        away.start()
        cluster.heal()
        for number in range(5):
            send(b"c%d" % number, b"1")
        producer.close()
        for broker in cluster.brokers:
            if broker.id != away.id:
                broker.kill()
                cluster.sleep(30)
        assert cluster.leader("t").id == away.id
        last = {record.key: record.value for record in cluster.records("t")}
        assert last.get(b"a") is None
        assert len(last) == 10, "the tombstone went in the end"
"""


def test_a_deleted_key_does_not_come_back_with_a_replica(project: Project) -> None:
    project.write(test_life=LIFE)
    code, out = project.run()
    assert (code, outcomes(out)) == (0, {"test_a_deleted_key_does_not_come_back[seed1]": "PASSED"}), out
