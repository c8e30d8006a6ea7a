// BullMQ, unmodified: what its scripts make of lists, sorted sets, hashes and streams, and what its workers wait for. Jobs
// of every kind, retries and failures, events, rate limits, repetition, and flows of jobs that wait for others.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const { check, fail, run } = require("./checks.js");

// Nothing here takes long; a script that waits for a job would wait for ever.
const PATIENCE_MS = 60_000;
const connection = { host: "127.0.0.1", port: Number(process.env.PENSTOCK_PORT) };

// Waits until `holds` does.
async function until(holds) {
  while (!(await holds())) await sleep(10);
}

// A queue of its own for each part, with whatever else is opened through it closed at the end.
async function withQueue(name, run) {
  const queue = new Queue(name, { connection });
  const open = [];
  const worker = (process_, options) => {
    const made = new Worker(name, process_, { connection, drainDelay: 1, ...options });
    made.on("error", (error) => fail(`${name}: ${error}`));
    open.push(made);
    return made;
  };
  const events = async () => {
    const made = new QueueEvents(name, { connection });
    open.push(made);
    await made.waitUntilReady();
    return made;
  };
  await run(queue, worker, events);
  await Promise.all(open.map((made) => made.close()));
  await queue.obliterate({ force: true });
  // But for the limiter's count, which expires by itself.
  const client = await queue.client;
  const left = (await client.keys(`bull:${name}:*`)).filter((key) => !key.endsWith(":limiter"));
  check(`${name}: nothing is left`, left, []);
  await queue.close();
}

const of = (counts, ...kinds) => Object.fromEntries(kinds.map((kind) => [kind, counts[kind]]));

async function kinds(queue, worker, events) {
  await queue.pause();
  const first = await queue.add("plain", { n: 1 });
  check("the first job's ID", first.id, "1");
  const bulk = await queue.addBulk(Array.from({ length: 50 }, (_, n) => ({ name: "bulk", data: { n } })));
  check("IDs of many", [bulk[0].id, bulk[49].id, bulk.length], ["2", "51", 50]);
  await queue.add("urgent", {}, { priority: 1 });
  await queue.add("less urgent", {}, { priority: 5 });
  await queue.add("late", {}, { delay: 150 });
  check("a custom ID", (await queue.add("named", {}, { jobId: "name" })).id, "name");
  check("the same again", (await queue.add("named", { other: true }, { jobId: "name" })).id, "name");
  const counts = await queue.getJobCounts();
  check("counts", of(counts, "paused", "prioritized", "delayed", "completed", "failed"), {
    paused: 52,
    prioritized: 2,
    delayed: 1,
    completed: 0,
    failed: 0,
  });
  const heard = await events();
  const completed = [];
  heard.on("completed", ({ jobId, returnvalue }) => completed.push([jobId, returnvalue]));
  const order = [];
  worker(async (job) => {
    order.push(job.name);
    return job.data.n ?? job.name;
  });
  await queue.resume();
  await until(() => completed.length === 55);
  check("every job's end is heard once", new Set(completed.map(([id]) => id)).size, 55);
  check("what a job gives", completed.find(([id]) => id === "51")[1], 49);
  check("jobs by priority", order.indexOf("urgent") < order.indexOf("less urgent"), true);
  check("the delayed one", order.includes("late"), true);
  check("counts at the end", of(await queue.getJobCounts(), "completed", "waiting", "active", "delayed"), {
    completed: 55,
    waiting: 0,
    active: 0,
    delayed: 0,
  });
  check("a job that is done", (await queue.getJob("name")).returnvalue, "named");
  check("cleaned", (await queue.clean(0, 5, "completed")).length, 5);
  check("trimmed events", typeof (await queue.trimEvents(10)), "number");
}

async function failures(queue, worker, events) {
  const heard = await events();
  const seen = [];
  for (const event of ["waiting", "active", "failed", "completed", "progress", "retries-exhausted"]) {
    heard.on(event, ({ jobId }) => seen.push(`${event} ${jobId}`));
  }
  const made = worker(async (job) => {
    if (job.name === "hopeless") throw new Error("no hope");
    if (job.attemptsMade < 2) throw new Error(`attempt ${job.attemptsMade}`);
    await job.updateProgress(50);
    await job.log("a line");
    return "at last";
  });
  const failed = [];
  made.on("failed", (job, error) => failed.push(`${job.name}: ${error.message}`));
  const retried = await queue.add("retried", {}, { attempts: 3, backoff: { type: "fixed", delay: 20 } });
  check("what it gives at last", await retried.waitUntilFinished(heard), "at last");
  const hopeless = await queue.add("hopeless", {}, { attempts: 2 });
  const reason = await hopeless.waitUntilFinished(heard).catch((error) => error.message);
  check("why it fails", reason, "no hope");
  await until(() => failed.length >= 4);
  check("every failure", failed.sort(), [
    "hopeless: no hope",
    "hopeless: no hope",
    "retried: attempt 0",
    "retried: attempt 1",
  ]);
  await until(() => seen.includes(`retries-exhausted ${hopeless.id}`));
  check("progress is heard", seen.includes(`progress ${retried.id}`), true);
  check("its log", (await queue.getJobLogs(retried.id)).logs, ["a line"]);
  check("counts", of(await queue.getJobCounts(), "completed", "failed"), { completed: 1, failed: 1 });
  check("the failed ones", (await queue.getFailed()).map((job) => [job.name, job.attemptsMade]), [["hopeless", 2]]);
  await made.close();
  await (await queue.getJob(hopeless.id)).retry();
  check("retried by hand", of(await queue.getJobCounts(), "waiting", "failed"), { waiting: 1, failed: 0 });
}

async function limits(queue, worker) {
  const began = Date.now();
  let done = 0;
  await queue.addBulk(Array.from({ length: 6 }, (_, n) => ({ name: "limited", data: n })));
  worker(async () => (done += 1), { limiter: { max: 2, duration: 200 } });
  await until(() => done === 6);
  check("no faster than the limit", Date.now() - began >= 390, true);
}

async function repetition(queue, worker) {
  let done = 0;
  worker(async () => (done += 1));
  await queue.upsertJobScheduler("every so often", { every: 100 }, { name: "again", data: { x: 1 } });
  check("its scheduler", (await queue.getJobSchedulers()).map((s) => [s.key, s.every]), [["every so often", 100]]);
  await until(() => done >= 3);
  check("removed", await queue.removeJobScheduler("every so often"), true);
  check("none left", await queue.getJobSchedulersCount(), 0);
}

async function concurrency(queue, worker) {
  let active = 0;
  let most = 0;
  let done = 0;
  const work = async () => {
    most = Math.max(most, (active += 1));
    await sleep(5);
    active -= 1;
    done += 1;
  };
  const workers = [1, 2, 3].map(() => worker(work, { concurrency: 5 }));
  await Promise.all(workers.map((made) => made.waitUntilReady()));
  await Promise.all(Array.from({ length: 300 }, (_, n) => queue.add("many", { n }, { removeOnComplete: 10 })));
  await until(() => done === 300);
  await until(async () => (await queue.getJobCounts()).active === 0);
  check("several at once", most > 1 && most <= 15, true);
  check("only the last are kept", await queue.getCompletedCount(), 10);
}

async function flows(queue, worker, events) {
  const flow = new FlowProducer({ connection });
  const heard = await events();
  worker(async (job) => {
    if (job.name !== "parent") return job.data.n * 2;
    return Object.values(await job.getChildrenValues()).reduce((sum, n) => sum + n, 0);
  });
  const child = (n) => ({ name: "child", queueName: queue.name, data: { n } });
  const tree = await flow.add({ name: "parent", queueName: queue.name, children: [1, 2, 3].map(child) });
  check("the sum of the children", await tree.job.waitUntilFinished(heard), 12);
  check("dependencies", Object.keys((await tree.job.getDependencies()).processed).length, 3);
  await flow.close();
}

const parts = { kinds, failures, limits, repetition, concurrency, flows };

async function main() {
  for (const [name, part] of Object.entries(parts)) {
    await withQueue(name, part);
    console.log(`${name}: as expected`);
  }
}

run(main, PATIENCE_MS);
