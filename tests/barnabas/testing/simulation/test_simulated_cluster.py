"""The fixture `simulated_cluster`, used by a pytest in a process of its own.

Tests runner.py, nursery.py, in_child.py, cluster.py and application.py.
"""

from __future__ import annotations

import re

from tests.barnabas.testing.simulation.conftest import Project, outcomes

CLIENTS = """
    import asyncio

    import aiokafka
    import kafka
    import pytest


    def test_kafka_python(simulated_cluster):
        cluster = simulated_cluster
        cluster.create_topic("t", partitions=3)
        producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
        leader = cluster.leader("t")
        leader.kill()
        for number in range(30):
            producer.send("t", b"%d" % number)
        producer.flush()
        cluster.sleep(60)
        leader.start()
        settings = {"group_id": "g", "auto_offset_reset": "earliest", "consumer_timeout_ms": 30_000}
        consumer = kafka.KafkaConsumer("t", bootstrap_servers=cluster.bootstrap, **settings)
        assert sorted(int(record.value) for record in consumer) == list(range(30))
        consumer.close()
        producer.close()


    def test_aiokafka(simulated_cluster):
        cluster = simulated_cluster
        cluster.create_topic("t", partitions=3)

        async def main():
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
                for number in range(30):
                    await producer.send_and_wait("t", b"%d" % number)
            settings = {"group_id": "g", "auto_offset_reset": "earliest"}
            async with aiokafka.AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap, **settings) as consumer:
                return [int((await consumer.getone()).value) for _ in range(30)]

        assert sorted(asyncio.run(main())) == list(range(30))
"""


def digests(project: Project) -> list[str]:
    code, out = project.run("--junitxml=out.xml")
    assert code == 0, out
    return re.findall(r'name="simulation_digest" value="(\w+)"', (project.directory / "out.xml").read_text())


def test_clients_of_others_have_the_same_history_twice(project: Project) -> None:
    project.write(test_clients=CLIENTS)
    first = digests(project)
    assert len(first) == 2
    assert digests(project) == first


def test_other_tests_run_in_the_real_interpreter(project: Project) -> None:
    project.write(
        conftest="""
        import os, time
        import pytest

        @pytest.fixture
        def real_pid():
            return os.getpid()

        @pytest.fixture(scope="module")
        def slow():
            yield time.monotonic()
        """,
        test_it="""
        import os, sys, time
        import pytest

        def test_before(slow, real_pid):
            assert "barnabas.testing.simulation.machine.scheduler" not in sys.modules
            assert os.getppid() > 1 and real_pid == os.getpid()

        class TestInside:
            def test_simulated(self, simulated_cluster, real_pid, tmp_path, capsys):
                (tmp_path / "file").write_text("x")
                before = time.time()
                time.sleep(3600)
                assert 3600 <= time.time() - before < 3601
                print("seen")
                assert capsys.readouterr().out == "seen\\n"

        @pytest.mark.skip(reason="not now")
        def test_skipped(simulated_cluster):
            raise AssertionError

        @pytest.mark.xfail(reason="known")
        def test_expected(simulated_cluster):
            assert simulated_cluster.seed == 0

        def test_after(slow):
            assert "barnabas.testing.simulation.machine.scheduler" not in sys.modules
        """,
        test_next="""
        def test_next():
            pass
        """,
    )
    code, out = project.run()
    assert code == 0, out
    assert "4 passed, 1 skipped, 1 xfailed" in out


def test_a_failure_shows_the_seed_and_the_story(project: Project) -> None:
    project.write(
        test_it="""
        import pytest

        @pytest.mark.simulation(seeds=3, brokers=1)
        def test_of_seeds(simulated_cluster):
            print("printed by the test")
            simulated_cluster.broker(0).kill()
            simulated_cluster.sleep(1)
            assert simulated_cluster.seed != 2
        """
    )
    code, out = project.run()
    assert code == 1
    assert outcomes(out) == {
        "test_of_seeds[seed1]": "PASSED",
        "test_of_seeds[seed2]": "FAILED",
        "test_of_seeds[seed3]": "PASSED",
    }
    assert "assert 2 != 2" in out
    assert "printed by the test" in out
    assert re.search(r"seed 2 of Barnabas [\d.]+, again with: pytest 'test_it.py::test_of_seeds\[seed2\]'", out), out
    assert "broker-0 is killed" in out
    assert project.run("test_it.py::test_of_seeds[seed2]")[0] == 1
    code, out = project.run("--simulation-seed", "10", "--simulation-seeds", "2")
    assert (code, set(outcomes(out))) == (0, {"test_of_seeds[seed10]", "test_of_seeds[seed11]"}), out


def test_programs_are_killed_joined_and_their_errors_are_failures(project: Project) -> None:
    project.write(
        test_it="""
        import threading, time
        import pytest

        def count(numbers):
            while True:
                time.sleep(1)
                numbers.append(len(numbers))

        def fail():
            raise RuntimeError("no more tea")

        def with_a_thread(numbers):
            threading.Timer(5, numbers.append, [7]).start()
            return "done"

        @pytest.mark.simulation(brokers=1)
        def test_kill(simulated_cluster):
            numbers = []
            program = simulated_cluster.run(count, numbers)
            simulated_cluster.sleep(10)
            program.pause()
            simulated_cluster.sleep(10)
            assert 8 <= len(numbers) <= 10
            program.resume()
            simulated_cluster.sleep(5)
            program.kill()
            seen = len(numbers)
            assert seen > 12 and not program.is_running
            simulated_cluster.sleep(10)
            assert len(numbers) == seen

        @pytest.mark.simulation(brokers=1)
        def test_join(simulated_cluster):
            numbers = []
            assert simulated_cluster.run(with_a_thread, numbers).join() == "done"
            assert numbers == [7]
            with pytest.raises(RuntimeError, match="no more tea"):
                simulated_cluster.run(fail).join()

        @pytest.mark.simulation(brokers=1)
        def test_error(simulated_cluster):
            simulated_cluster.run(fail)
            simulated_cluster.sleep(1)
        """
    )
    code, out = project.run()
    assert code == 1
    assert outcomes(out)["test_kill[seed1]"] == "PASSED", out
    assert outcomes(out)["test_join[seed1]"] == "PASSED", out
    assert outcomes(out)["test_error[seed1]"] == "ERROR", out
    assert "RuntimeError: no more tea" in out


def test_mistakes_are_one_line(project: Project) -> None:
    project.write(
        test_it="""
        import threading
        import pytest

        @pytest.mark.simulation(config={"num.io.threads": "many"}, brokers=1)
        def test_bad_config(simulated_cluster):
            pass

        @pytest.mark.simulation(brokers=1, limit=30)
        def test_too_long(simulated_cluster):
            simulated_cluster.sleep(100)

        @pytest.mark.simulation(brokers=1)
        def test_lock(simulated_cluster):
            first, second = threading.Lock(), threading.Lock()
            second.acquire()
            def other():
                with first:
                    second.acquire()
            thread = threading.Thread(target=other)
            thread.start()
            simulated_cluster.sleep(1)
            first.acquire()

        @pytest.mark.simulation(brokers=1)
        def test_no_such_broker(simulated_cluster):
            simulated_cluster.broker(7)

        @pytest.mark.simulation(brokers=1)
        def test_the_process_ends(simulated_cluster):
            import os
            os._exit(3)
        """
    )
    code, out = project.run()
    assert code == 1
    assert "the simulated cluster could not be started: " in out
    assert "num.io.threads" in out
    assert "30 s of virtual time have passed" in out
    assert "a deadlock:" in out
    assert "there is no broker 7: they are 0" in out
    assert "the interpreter of the simulation ended with 3" in out
    for given in ('seeds="three"', "brokers=0", "colour=1"):
        project.write(
            test_it=f"""
            import pytest

            @pytest.mark.simulation({given})
            def test_it(simulated_cluster):
                pass
            """
        )
        code, out = project.run()
        assert code == 4 or "errors" in out or "error" in out, out
        assert "@pytest.mark.simulation: " in out, out
        assert "Traceback" not in out


def test_an_active_controller_is_killed_and_another_one_acts(project: Project) -> None:
    project.write(
        test_controllers="""
        import pytest


        @pytest.mark.simulation(controllers=3)
        def test_a_topic_is_created_after_a_failover(simulated_cluster):
            cluster = simulated_cluster
            assert [node.id for node in cluster.controllers] == [100, 101, 102]
            former = cluster.controller
            former.kill()
            cluster.wait_until(lambda: cluster.controller.is_running, what="another active controller")
            assert cluster.controller.id != former.id
            cluster.create_topic("t")
            cluster.heal()
            assert all(node.is_running for node in cluster.controllers)
        """
    )
    code, out = project.run()
    assert code == 0, out
