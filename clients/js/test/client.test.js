/** Run against the server of BEDROCKJOBS_URL, whose queue is empty. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { BadArguments, Client, ConnectionFailed, Fail, Handle, JobFailed, NoResult, NotFound, work } from "../dist/index.js";

const client = new Client({ url: process.env.BEDROCKJOBS_URL });

/** Run a worker until the block has ended. */
async function working(name, handler, block) {
  const stop = new AbortController();
  const worker = work(client, name, handler, { signal: stop.signal, slots: 2 });
  try {
    await block();
  } finally {
    stop.abort();
    await worker;
  }
}

test("jobs are done and their results awaited", async () => {
  const double = (job) => ({ number: 2 * job.data.number });
  await working("double/*", double, async () => {
    const handles = await Promise.all([1, 2, 3].map((number) => client.enqueue("double/now", { number })));
    assert.deepEqual(await Promise.all(handles.map((each) => each.wait())), [2, 4, 6].map((number) => ({ number })));
    assert.equal(await handles[0].state(), "FINISHED");
  });
});

test("a failed job says why", async () => {
  const refuse = (job) => {
    throw job.data.final ? new Fail("never") : new TypeError("not now");
  };
  await working("refuse", refuse, async () => {
    for (const [final, words] of [[false, /TypeError: not now/], [true, /Fail: never/]]) {
      const failing = await client.enqueue("refuse", { final }, { retries: final ? 5 : 0 });
      await assert.rejects(failing.wait(), (error) => error instanceof JobFailed && words.test(error.message));
    }
  });
});

test("a result that cannot be reported fails the job", async () => {
  await working("big", () => ({ number: 1n }), async () => {
    await assert.rejects((await client.enqueue("big")).wait(), /BigInt/);
  });
});

test("a run is told to stop", async () => {
  let told;
  const endless = (job, signal) =>
    new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject((told = signal.reason)));
      void client.call("CancelJob", { jobID: job.jobID, any: true });
    });
  await working("endless", endless, async () => {
    const handle = await client.enqueue("endless");
    await assert.rejects(handle.wait(), JobFailed);
  });
  assert.match(told.message, /stopped: (TERM|LOST)/);
});

test("refusals are typed", async () => {
  await assert.rejects(client.createJob({ name: "a", retries: -1 }), (error) => {
    assert.ok(error instanceof BadArguments);
    assert.deepEqual([error.status, error.code, error.attribute, error.retryable], [400, 402, "retries", false]);
    return true;
  });
  await assert.rejects(client.createJob({}), { name: "BadArguments", attribute: "name" });
  await assert.rejects(client.createJob({ name: "a", retires: 1 }), { attribute: "retires" });
  await assert.rejects(client.call("GetJob", { name: "nothing" }), NotFound);
  const nobody = new Client({ url: "http://127.0.0.1:2" });
  await assert.rejects(nobody.createJob({ name: "a" }), (error) => {
    return error instanceof ConnectionFailed && !error.sent;
  });
});

test("a wait ends by its signal, and by the end of what it waits for", async () => {
  const handle = await client.enqueue("nobody");
  await assert.rejects(handle.wait({ signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
  await handle.cancel();
  await assert.rejects(handle.wait(), /CANCELLED/);
  const id = await client.createJob({ name: "short" });
  await client.call("DeleteJob", { jobID: id });
  await assert.rejects(new Handle(client, id).wait(), NoResult);
});
