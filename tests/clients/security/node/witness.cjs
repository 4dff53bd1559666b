// Runs commands with kafkajs, as ../programs.py describes.
const fs = require("node:fs");
const readline = require("node:readline");
const { Kafka, logLevel } = require("kafkajs");

const PATIENCE_MS = 20000;
const PAUSE_MS = 100;

function client(path) {
  const who = JSON.parse(fs.readFileSync(path, "utf8"));
  const settings = {
    clientId: "kafkajs",
    brokers: [who.Bootstrap],
    logLevel: logLevel.NOTHING,
    reauthenticationThreshold: 300, // milliseconds before the end of a session; ten seconds are the default
    retry: { initialRetryTime: 50, maxRetryTime: 200, retries: 3 },
  };
  if (who.Protocol.endsWith("SSL")) {
    const own = who.Certificate ? fs.readFileSync(who.Certificate, "utf8") : undefined;
    settings.ssl = { ca: [fs.readFileSync(who.Ca, "utf8")], cert: own, key: own };
  }
  if (who.Mechanism === "OAUTHBEARER") {
    const oauthBearerProvider = async () => ({ value: fs.readFileSync(who.Token, "utf8") });
    settings.sasl = { mechanism: "oauthbearer", oauthBearerProvider };
  } else if (who.Mechanism) {
    settings.sasl = { mechanism: who.Mechanism.toLowerCase(), username: who.User, password: who.Password };
  }
  return new Kafka(settings);
}

async function producing(kafka, act) {
  const producer = kafka.producer();
  await producer.connect();
  try {
    return await act((topic, value) => producer.send({ topic, messages: [{ value }] }));
  } finally {
    await producer.disconnect();
  }
}

async function first(kafka, topic) {
  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 100 });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    return await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("no record")), PATIENCE_MS);
      const end = (how, what) => (clearTimeout(timer), how(what));
      consumer.on(consumer.events.CRASH, ({ payload }) => end(reject, payload.error));
      const eachMessage = async ({ message }) => end(resolve, message.value.toString());
      consumer.run({ eachMessage }).catch((error) => end(reject, error));
    });
  } finally {
    await consumer.disconnect();
  }
}

const ACTIONS = {
  round: async (kafka, topic) => {
    await producing(kafka, (send) => send(topic, "from kafkajs"));
    return first(kafka, topic);
  },
  session: (kafka, topic, milliseconds) =>
    producing(kafka, async (send) => {
      const end = Date.now() + Number(milliseconds);
      let delivered = 0;
      for (; Date.now() < end; delivered++) {
        await send(topic, "x");
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
      return delivered;
    }),
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [action, path, ...words] = line.split(" ");
    try {
      console.log(`ok ${await ACTIONS[action](client(path), ...words)}`);
    } catch (error) {
      const causes = [];
      for (let each = error; each; each = each.cause ?? each.originalError) causes.push(`${each.name}: ${each.message}`);
      console.log(`error ${causes.join(" <- ").replaceAll("\n", " ")}`);
    }
  }
  process.exit(0);
})();
