/** A worker: takes jobs, sends heartbeats while they run, and reports how they end. */

import { sleep, unlessGone, type Client, type JSONObject, type Schemas } from "./client.js";
import { CommandError, ConnectionFailed, Fail, NotFound, WrongState } from "./errors.js";

export type Job = Schemas["JobReply"];

/**
 * What a handler returns becomes the job's data. An error fails the run, which is repeated by the job's
 * `retries`. The signal is aborted when the run must stop: by a user, or after its `runTimeout`.
 */
export type Handler = (job: Job, signal: AbortSignal) => Promise<JSONObject | void> | JSONObject | void;

export interface WorkerOptions {
  /** Stops the worker: it takes no more jobs, and ends when its runs have ended. */
  signal: AbortSignal;
  /** The worker's name, by default one of its own. */
  worker?: string;
  /** How many jobs run at the same time, 1 by default. */
  slots?: number;
  /** Receives errors that do not end the worker, which are printed by default. */
  onError?: (error: unknown) => void;
}

const TAKE_MS = 30_000;
/** Well below the lease of a run, 45 s. */
const HEARTBEAT_MS = 10_000;
/** Age at which a run is named to the server, so that it can be stopped; most runs are over before. */
const KNOWN_AFTER_MS = 1_000;
const AGAIN_MS = 500;
const AGAIN_MS_MAX = 15_000;
/** Attempts to report an end, about two minutes; the lease then gives the job to another worker. */
const REPORTS_MAX = 12;
/** Longest time that `setTimeout` can wait. */
const TIMER_MS_MAX = 2 ** 31 - 1;

interface Run {
  abort: AbortController;
  lost: boolean;
  timedOut: boolean;
}

/** Call a handler for each job whose name matches a pattern, until the signal is aborted. */
export async function work(client: Client, name: string, handler: Handler, options: WorkerOptions): Promise<void> {
  const { worker = `js-${Math.random().toString(36).slice(2)}`, slots = 1, onError = console.error } = options;
  const runs = new Map<number, Run>();
  const stop = new AbortController();
  const over = new AbortController();
  let failed: { error: unknown } | undefined;
  let beatNow = () => {};

  async function takeAndRun(): Promise<void> {
    const request = { name, worker, heartbeat: true, connection: "wait", timeout: TAKE_MS };
    await repeat(stop.signal, async () => {
      const job = await client.call("GetJob", request, { signal: stop.signal }).catch(unlessGone);
      if (!job) return;
      const soon = setTimeout(() => beatNow(), KNOWN_AFTER_MS);
      await run(client, job, handler, runs, onError).finally(() => clearTimeout(soon));
    });
  }

  async function beat(): Promise<void> {
    const request = { worker, names: [name], slots, connection: "wait", timeout: HEARTBEAT_MS };
    await repeat(over.signal, async () => {
      const again = new AbortController();
      beatNow = () => again.abort();
      const sent = { ...request, runIDs: [...runs.keys()] };
      const reply = await client.call("Heartbeat", sent, { signal: again.signal }).catch((error: unknown) => {
        if (!again.signal.aborted) throw error;
      });
      for (const { runID, signal } of reply?.stop ?? []) {
        const found = runs.get(runID);
        if (!found) continue;
        if (signal === "LOST") {
          found.lost = true;
          runs.delete(runID);
        }
        found.abort.abort(new Error(`stopped: ${signal}`));
      }
    });
  }

  async function repeat(signal: AbortSignal, step: () => Promise<void>): Promise<void> {
    for (let failures = 0; !signal.aborted; ) {
      try {
        await step();
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        if (!isPassing(error)) {
          failed = { error };
          return stop.abort();
        }
        onError(error);
        await sleep(againMs(failures++), signal).catch(() => undefined);
      }
    }
  }

  const abort = () => stop.abort();
  if (options.signal.aborted) return;
  options.signal.addEventListener("abort", abort);
  const beating = beat();
  await Promise.all(Array.from({ length: slots }, takeAndRun));
  options.signal.removeEventListener("abort", abort);
  over.abort();
  beatNow();
  await beating;
  await client.call("Heartbeat", { worker, leaving: true }).catch(onError);
  if (failed) throw failed.error;
}

async function run(
  client: Client,
  job: Job,
  handler: Handler,
  runs: Map<number, Run>,
  onError: (error: unknown) => void,
): Promise<void> {
  const runID = job.runID as number; // since the worker has a name
  const own: Run = { abort: new AbortController(), lost: false, timedOut: false };
  runs.set(runID, own);
  const timeOut = () => {
    own.timedOut = true;
    own.abort.abort(new Error(`timed out after ${job.runTimeout} s`));
  };
  const timer = job.runTimeout ? setTimeout(timeOut, Math.min(job.runTimeout * 1000, TIMER_MS_MAX)) : undefined;
  const end = { jobID: job.jobID, runID };
  const fail = (error: unknown, final: boolean) => () =>
    client.call("FailJob", { ...end, error: textOf(error), final, timedOut: own.timedOut });
  let send: () => Promise<unknown>;
  try {
    const data = await handler(job, own.abort.signal);
    if (own.timedOut) throw own.abort.signal.reason;
    send = () => client.call("FinishJob", { ...end, ...(data && { data }) });
  } catch (error) {
    send = fail(error, error instanceof Fail);
  }
  clearTimeout(timer);
  try {
    await report(own, send).catch((error: unknown) => {
      if (isPassing(error)) throw error;
      return report(own, fail(error, true)); // another run would return the same
    });
  } catch (error) {
    onError(error);
  } finally {
    runs.delete(runID);
  }
}

/** Report an end, again while the server is away. If the run is over, an earlier report has arrived, or it is lost. */
async function report(own: Run, send: () => Promise<unknown>): Promise<void> {
  for (let failures = 0; !own.lost; ) {
    try {
      await send();
      return;
    } catch (error) {
      if (error instanceof NotFound || error instanceof WrongState) return;
      if (!isPassing(error) || ++failures === REPORTS_MAX) throw error;
      await sleep(againMs(failures));
    }
  }
}

function isPassing(error: unknown): boolean {
  return error instanceof ConnectionFailed || (error instanceof CommandError && error.retryable);
}

function againMs(failures: number): number {
  return Math.min(AGAIN_MS * 2 ** failures, AGAIN_MS_MAX) * (0.75 + Math.random() / 4);
}

function textOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? String(error)) : String(error);
}
