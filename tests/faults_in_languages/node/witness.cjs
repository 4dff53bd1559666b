// Does with kafkajs what it is told, a line each on stdin, and says on stdout how the client saw it end: `ok`, or
// `error CODE NAME`. The argument is the bootstrap servers. The commands are in ../languages.py.
const readline = require("node:readline");
const { Kafka, logLevel } = require("kafkajs");

const PATIENCE_MS = 30000;
const kafka = new Kafka({
  clientId: "node",
  brokers: process.argv[2].split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 8 },
});

// kafkajs wraps what the broker said: the cause that has a code is the broker's.
function told(error) {
  for (let each = error; each; each = each.cause ?? each.originalError ?? each.errors?.[0]) {
    if (Number.isInteger(each.code)) return `error ${each.code} ${each.type} ${error.name}: ${error.message}`;
  }
  return `error -1 none ${error.name}: ${error.message}`;
}

async function produce(topic) {
  const producer = kafka.producer();
  await producer.connect();
  try {
    await producer.send({ topic, messages: [{ value: "from node" }] });
  } finally {
    await producer.disconnect();
  }
}

// kafkajs reads in groups only; what it cannot go on after is told by the event of a crash.
async function join(topic, groupId) {
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100, retry: { retries: 3, initialRetryTime: 50 } });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("no record")), PATIENCE_MS);
      const end = (how, what) => (clearTimeout(timer), how(what));
      consumer.on(consumer.events.CRASH, ({ payload }) => end(reject, payload.error));
      consumer.run({ eachMessage: async () => end(resolve) }).catch((error) => end(reject, error));
    });
  } finally {
    await consumer.disconnect();
  }
}

async function create(topic) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] });
  } finally {
    await admin.disconnect();
  }
}

const ACTIONS = { produce, join, create, consume: (topic) => join(topic, `reader-of-${topic}-${Date.now()}`) };

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [action, ...words] = line.split(" ");
    try {
      await ACTIONS[action](...words);
      console.log("ok");
    } catch (error) {
      console.log(told(error).replaceAll("\n", " "));
    }
  }
  process.exit(0);
})();
