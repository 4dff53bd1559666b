from __future__ import annotations

import unittest

from shop import Till

import barnabas.testing


class SaleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.kafka = cls.enterClassContext(barnabas.testing.cluster(brokers=1))

    def test_a_sale_is_announced(self) -> None:
        topic = self.kafka.create_topic("sales", partitions=3)
        Till(self.kafka.bootstrap, topic).sell("tea", 1)
        self.kafka.assert_produced(topic, {"article": "tea", "amount": 1})


if __name__ == "__main__":
    unittest.main()
